// crawlee's CheerioCrawler with its polite options. Its storage is kept between the runs. Documented at
// https://crawlee.dev/js/api/cheerio-crawler/interface/CheerioCrawlerOptions.
process.env.CRAWLEE_STORAGE_DIR = process.env.CONFORMANCE_FOLDER;
process.env.CRAWLEE_PURGE_ON_START = "1";
const { createRequire } = require("node:module");
const { readFileSync } = require("node:fs");
const { CheerioCrawler, ProxyConfiguration } = createRequire(process.cwd() + "/")("crawlee");

const proxy = process.env.CONFORMANCE_PROXY;

const crawler = new CheerioCrawler({
  proxyConfiguration: proxy ? new ProxyConfiguration({ proxyUrls: [proxy] }) : undefined,
  respectRobotsTxtFile: true,
  sameDomainDelaySecs: 1,
  maxConcurrency: 1,
  additionalMimeTypes: ["application/rss+xml", "text/plain"],
  requestHandler: async ({ request, log }) => log.info(request.url),
});
crawler.run(readFileSync(process.env.CONFORMANCE_SEEDS, "utf8").split("\n").filter(Boolean));
