// rss-parser, one feed after the other, as in the README of https://github.com/rbren/rss-parser.
const { createRequire } = require("node:module");
const { readFileSync } = require("node:fs");
const Parser = createRequire(process.cwd() + "/")("rss-parser");

async function main() {
  const parser = new Parser({ timeout: 20000 });
  for (const url of readFileSync(process.env.CONFORMANCE_SEEDS, "utf8").split("\n")) {
    if (!url) continue;
    try {
      console.log(url, (await parser.parseURL(url)).items.length);
    } catch (error) {
      console.log(url, error.message);
    }
  }
}
// A response that was not read to its end would keep the process alive.
main().then(() => process.exit());
