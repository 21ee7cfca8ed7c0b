"""Honest crawlers that send a HEAD before each GET of a page: `python headfirst.py CLIENT`.

CLIENT is the program or library that makes the requests, one of `CLIENTS`.
"""

import base64
import json
import re
import subprocess
import sys
from email import message_from_bytes
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.helpers import honest

#: Seconds after which a request is given up.
TIMEOUT = 10
#: Prints status, headers and body as JSON; `-e` of Node.js.
NODE = """
const [url, method, fields] = process.argv.slice(1);
const client = require(url.startsWith("https:") ? "https" : "http");
const options = {method, headers: JSON.parse(fields), agent: false};
const request = client.request(url, options, (answer) => {
  const parts = [];
  answer.on("data", (part) => parts.push(part));
  answer.on("end", () => console.log(JSON.stringify(
    [answer.statusCode, answer.headers, Buffer.concat(parts).toString("base64")])));
});
request.setTimeout(10000, () => process.exit(1));
request.on("error", () => process.exit(1));
request.end();
"""
#: The same for Perl, with the module of its own distribution, whose `request` sends a request again
#: at once if the server closes the connection.
PERL = """
use HTTP::Tiny; use JSON::PP; use MIME::Base64;
my ($url, $method, $fields) = @ARGV;
my $sent = decode_json($fields);
my $agent = delete $sent->{"User-Agent"};
my $client = HTTP::Tiny->new(agent => $agent, max_redirect => 0, timeout => 10);
my $answer = eval { $client->_request($method, $url, {headers => $sent}) } or exit 1;
print encode_json([$answer->{status}+0, $answer->{headers}, encode_base64($answer->{content}, "")]);
"""


def output_of(*command):
    """Return what a command writes. Raises OSError if it fails, or writes nothing.

    Node.js writes nothing if a response is cut off.
    """
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode or not done.stdout:
        raise OSError(done.stderr)
    return done.stdout


def by_curl(url, method, fields):
    verb = ["--head"] if method == "HEAD" else ["--include"]
    headers = [word for name, value in fields.items() for word in ("-H", f"{name}: {value}")]
    command = ["curl", "-q", "-sS", "--raw", "--max-time", str(TIMEOUT), *verb, *headers, url]
    return parse(*output_of(*command).partition(b"\r\n\r\n")[::2])


def by_wget(url, method, fields):
    headers = [f"--header={name}: {value}" for name, value in fields.items()]
    command = ["wget", "--no-config", "--tries=1", "--max-redirect=0", "--content-on-error"]
    command += [f"--timeout={TIMEOUT}", f"--method={method}", "--server-response", "-O", "-"]
    done = subprocess.run([*command, *headers, url], capture_output=True, check=False)
    lines = re.findall(rb"^  (HTTP/.+|[\w-]+: .*)$", done.stderr, re.MULTILINE)
    if not lines:
        raise OSError(done.stderr)
    return parse(b"\r\n".join(lines), done.stdout)


def by_node(url, method, fields):
    return from_json(output_of("node", "-e", NODE, url, method, json.dumps(fields)))


def by_perl(url, method, fields):
    return from_json(output_of("perl", "-e", PERL, url, method, json.dumps(fields)))


def by_httpx(url, method, fields):
    import httpx

    try:
        answer = httpx.request(method, url, headers=fields, timeout=TIMEOUT)
    except httpx.HTTPError as error:
        raise OSError from error
    # httpx has unpacked the body already.
    headers = {k: v for k, v in answer.headers.items() if k != "content-encoding"}
    return answer.status_code, as_message(headers), answer.content


def by_urllib3(url, method, fields):
    import urllib3

    options = {"redirect": False, "retries": False, "timeout": TIMEOUT, "decode_content": False}
    try:
        answer = urllib3.PoolManager().request(method, url, headers=fields, **options)
    except urllib3.exceptions.HTTPError as error:
        raise OSError from error
    return answer.status, as_message(answer.headers), answer.data


def parse(head, body):
    """Return status, headers and body of a response as it was received."""
    status, _, fields = head.partition(b"\r\n")
    return int(status.split()[1]), message_from_bytes(fields), body


def from_json(text):
    status, headers, body = json.loads(text)
    return status, as_message(headers), base64.b64decode(body)


def as_message(headers):
    """Return headers as an object that finds them in any case."""
    lines = (f"{name}: {value}\r\n" for name, value in headers.items())
    return message_from_bytes("".join(lines).encode("latin-1"))


CLIENTS = {
    "curl": by_curl,
    "wget": by_wget,
    "node": by_node,
    "perl": by_perl,
    "httpx": by_httpx,
    "urllib3": by_urllib3,
}


class HeadFirst(honest.Crawler):
    def ask(self, url, tries=None, method="GET"):
        is_page = not url.endswith("/robots.txt") and url != self.list_url
        if is_page:
            status, body, location = yield from super().ask(url, tries, "HEAD")
            if status != 200:
                return status, body, location
        return (yield from super().ask(url, tries))

    def exchange(self, url, method, fields):
        return CLIENTS[sys.argv[1]](url, method, fields)


if __name__ == "__main__":
    honest.main(HeadFirst)
