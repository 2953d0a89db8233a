#!/usr/bin/env python3
"""Drives the page in headless Chromium: round trip, stop, regenerate, reload, keyboard, export and import, live view.

    python3 tests/web/page_test.py                                  # with a small server of its own
    python3 tests/web/page_test.py --url http://127.0.0.1:8000/     # against `heddle serve`
    python3 tests/web/page_test.py --serve PROGRAM MODEL            # against one of its own, for as long as the test
    python3 tests/web/page_test.py --url ... --long-answers 20000   # its model writes so many tokens, in seconds: they are stopped
    python3 tests/web/page_test.py --screenshots FOLDER             # also pictures of 400 and 1400 pixels

Needs selenium (PyPI or Debian's python3-selenium), chromium and chromium-driver (Debian). Exits 77, which ctest calls skipped, where they are missing.
"""
import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import fake_server  # noqa: E402

SKIPPED = 77
TIMEOUT = 60  # seconds, until a step must have happened; nothing is measured


def find_chromium():
    """A driver, or why there is none."""
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        return None, "selenium is not installed"
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        return None, "chromium or chromium-driver is not installed"
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = Service(executable_path=shutil.which("chromedriver"))
    return webdriver.Chrome(options=options, service=service), ""


class Page:
    def __init__(self, driver, url, long_answer):
        """`long_answer`: tokens of an answer that takes seconds; None: the model may end sooner."""
        from selenium.webdriver.common.keys import Keys
        self.driver, self.url, self.keys, self.long_answer = driver, url, Keys, long_answer

    def num_broken_off(self, server):
        """Answers that the server has broken off because the page went away."""
        if server:
            return server.num_broken_off
        with urllib.request.urlopen(self.url.rstrip("/") + "/live", timeout=TIMEOUT) as reply:
            return json.load(reply)["totals"]["cancelled"]

    def find(self, selector):
        return self.driver.find_element("css selector", selector)

    def all(self, selector):
        return self.driver.find_elements("css selector", selector)

    def until(self, what, condition):
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.ui import WebDriverWait
        wait = WebDriverWait(self.driver, TIMEOUT, ignored_exceptions=(StaleElementReferenceException,))
        return wait.until(lambda _: condition(), what)

    def open(self):
        self.driver.get(self.url)
        self.until("the served model is named", lambda: self.find("#model").text != "")

    def press(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains
        chain = ActionChains(self.driver)
        for key in keys[:-1]:
            chain.key_down(key)
        chain.send_keys(keys[-1])
        for key in keys[:-1]:
            chain.key_up(key)
        chain.perform()

    def idle(self):
        return self.find("#send").is_displayed()

    def say(self, text):
        self.find("#input").send_keys(text + self.keys.ENTER)

    def answer(self):
        self.until("the answer ends", self.idle)
        return self.all(".message.assistant .text")[-1].text

    def focused(self):
        return self.driver.switch_to.active_element.get_attribute("id")

    def new(self):
        self.until("nothing runs", self.idle)
        self.find("#new").click()


def check(holds, what):
    if not holds:
        raise AssertionError(what)


def round_trip(page, server):
    page.new()
    page.say("Once upon a time")
    text = page.answer()
    check(text != "", "an answer has text")
    check([one.text for one in page.all(".message.user .text")] == ["Once upon a time"], "the message is shown once")
    check("tokens" in page.all(".message.assistant .note")[-1].text, "the answer's tokens are counted")
    if server:
        check(server.bodies[-1]["messages"] == [{"role": "user", "content": "Once upon a time"}], "the messages are sent")
        check(server.bodies[-1]["stream_options"] == {"include_usage": True}, "usage is asked for")


def parameters_are_sent(page, server):
    page.new()
    for name, value in {"max_tokens": "7", "temperature": "0.5", "seed": "3"}.items():
        page.find(f"[name={name}]").send_keys(value)
    page.say("hello")
    page.answer()
    if server:
        body = server.bodies[-1]
        check((body["max_tokens"], body["temperature"], body["seed"]) == (7, 0.5, 3), f"parameters: {body}")
    page.driver.refresh()
    page.until("the page is back", lambda: page.find("[name=max_tokens]").get_attribute("value") == "7")
    for name in ("max_tokens", "temperature", "seed"):
        page.find(f"[name={name}]").clear()


def stop_and_regenerate(page, server):
    page.new()
    page.find("[name=max_tokens]").send_keys(str(page.long_answer or 400))
    page.say("A long story")
    page.until("text appears", lambda: len(page.all(".message.assistant .text")[-1].text) > 20)
    page.press(page.keys.ESCAPE)
    stopped = page.answer()
    if page.long_answer:  # a small model may have ended before
        check("stopped" in page.all(".message.assistant .note")[-1].text, "a stopped answer says so")
        check(len(stopped.split()) < page.long_answer, "the rest did not come")
        page.until("the server sees the end of the connection", lambda: page.num_broken_off(server) > 0)
    page.press(page.keys.ALT, "r")
    if page.long_answer:
        page.until("another answer runs", lambda: not page.idle())
        page.find("#stop").click()
    page.answer()
    check(len(page.all(".message.assistant")) <= 1, "the answer was replaced")
    page.find("[name=max_tokens]").clear()


def reload_keeps(page, _):
    before = [one.text for one in page.all(".message .text")]
    check(len(before) > 0, "there is something to keep")
    page.open()
    page.until("messages are back", lambda: [one.text for one in page.all(".message .text")] == before)


def reload_keeps_what_has_come(page, server):
    if not page.long_answer:
        return
    page.new()
    before = page.num_broken_off(server)
    page.find("[name=max_tokens]").send_keys(str(page.long_answer))
    page.say("A long story")
    page.until("text appears", lambda: len(page.all(".message.assistant .text")[-1].text) > 20)
    page.open()
    page.until("the answer's beginning is back", lambda: len(page.all(".message.assistant .text")[-1].text) > 20)
    check("stopped" in page.all(".message.assistant .note")[-1].text, "an answer that was cut off says so")
    page.until("the server sees the end of the connection", lambda: page.num_broken_off(server) > before)
    page.find("[name=max_tokens]").clear()


def errors_are_shown(page, server):
    if not server:
        return
    page.new()
    page.say("fail")
    page.until("an error", lambda: "not liked" in page.find("#error").text)
    check(page.idle(), "the page goes on")
    page.say("again")
    page.answer()
    check(not page.find("#error").is_displayed(), "the error is gone")


def code_is_text(page, server):
    if not server:
        return
    page.new()
    page.say("code")
    page.answer()
    check(page.find(".message.assistant pre").text == "print('<b>hi</b>')", "code is shown as it is")
    check(not page.all(".message.assistant b"), "no markup from an answer")


def reasoning_and_calls_are_kept(page, server):
    if not server:
        return
    page.new()
    page.say("use a tool")
    page.answer()

    def shown():
        page.find(".message.assistant .reasoning").find_element("css selector", "summary").click()
        return (page.find(".message.assistant .thoughts").text, page.find(".message.assistant .call-name").text,
                page.find(".message.assistant .call pre").text)

    expected = ("They want the weather.", "Call of weather", '{"city": "Bern"}')
    check(shown() == expected, "reasoning and call are shown")
    page.say("thanks")
    page.answer()
    check(page.all(".message.assistant .call-name")[0].text == expected[1], "the next message leaves them there")
    page.open()
    page.until("the answer is back", lambda: len(page.all(".message.assistant")) == 2)
    check(page.all(".message.assistant .call-name")[0].text == expected[1], "a reload leaves the call there")
    page.all(".message.assistant .reasoning summary")[0].click()
    check(page.all(".message.assistant .thoughts")[0].text == expected[0], "a reload leaves the reasoning there")


def live_view_has_a_key_of_its_own(page, server):
    if not server:
        return
    page.new()
    page.find("[name=key]").send_keys("user")
    page.find("[name=admin_key]").send_keys("admin")
    page.find("#tab-live").click()
    page.until("the admin key is sent", lambda: server.keys.get("/live") == "Bearer admin")
    page.find("#tab-chat").click()
    page.open()
    page.until("the user's key is sent", lambda: server.keys.get("/v1/models") == "Bearer user")
    stored = page.driver.execute_script("return JSON.stringify(localStorage)")
    check("admin" not in json.loads(stored).get("heddle.parameters", ""), "keys are kept for the tab only")
    for name in ("key", "admin_key"):
        page.find(f"[name={name}]").clear()


def export_and_import(page, _):
    page.new()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "conversation.json"
        said = [{"role": "user", "content": "<i>hi</i>"}, {"role": "assistant", "content": "hello"}]
        file.write_text(json.dumps({"messages": said, "parameters": {"temperature": "0.25"}}), encoding="utf-8")
        page.find("#import-file").send_keys(str(file))
        page.until("messages are there", lambda: [one.text for one in page.all(".message .text")] == ["<i>hi</i>", "hello"])
        check(page.find("[name=temperature]").get_attribute("value") == "0.25", "parameters come along")
        file.write_text('{"messages": [{"role": "wizard"}]}', encoding="utf-8")
        page.find("#import-file").send_keys(str(file))
        page.until("an error", lambda: "a message has no role" in page.find("#error").text)
        exported = page.driver.execute_async_script("""
            const done = arguments[0];
            URL.createObjectURL = (blob) => { blob.text().then(done); return "#"; };
            document.getElementById("export").click();""")
        check(json.loads(exported)["messages"] == said, "the export is what was imported")
        check(not {"key", "admin_key"} & set(json.loads(exported)["parameters"]), "keys are not exported")
    page.find("[name=temperature]").clear()
    page.open()


def keyboard(page, _):
    page.new()
    check(page.focused() == "input", "the message field has the focus")
    page.press(page.keys.ALT, "2")
    page.until("the live view", lambda: page.find("#view-live").is_displayed())
    page.press("/")
    page.until("the chat", lambda: page.find("#view-chat").is_displayed() and page.focused() == "input")
    page.find("#input").send_keys(page.keys.SHIFT + page.keys.ENTER)
    check(page.find("#input").get_attribute("value") == "\n", "shift and enter make a line")
    page.find("#input").clear()
    page.find("#tab-chat").send_keys(page.keys.ARROW_RIGHT)
    check(page.focused() == "tab-live", "arrows move between tabs")
    page.press("?")
    page.until("the shortcuts", lambda: page.find("#shortcuts").is_displayed())
    page.press(page.keys.ESCAPE)
    page.until("they close", lambda: not page.find("#shortcuts").is_displayed())
    page.press(page.keys.ALT, "1")


def live_view(page, _):
    page.find("#tab-live").click()
    page.until("cards", lambda: len(page.all("#live .card")) == 10)
    text = page.find("#live").text
    for title in ("Throughput", "Queue", "Batch", "KV-cache pages", "Prefix cache", "Time to first token", "Inter-token"):
        check(title in text, f"the live view has {title}")
    page.find("#tab-chat").click()


def nothing_is_blocked(page, _):
    """The policy of the server forbids nothing that the page does, and nothing is left without a name."""
    allowed = ("400 (Bad Request)",)  # the error that was asked for
    severe = [entry["message"] for entry in page.driver.get_log("browser")
              if entry["level"] == "SEVERE" and not any(one in entry["message"] for one in allowed)]
    check(not severe, f"the console says {severe}")
    nameless = page.driver.execute_script("""
        return [...document.querySelectorAll("button, input, select, textarea")]
          .filter((one) => !one.textContent.trim() && !one.getAttribute("aria-label") && !one.labels?.length)
          .map((one) => one.outerHTML);""")
    check(not nameless, f"without a name: {nameless}")


def screenshots(page, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for width, height in ((400, 800), (1400, 900)):
        page.driver.set_window_size(width, height)
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
        for theme in ("light", "dark"):
            page.driver.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
            for view in ("chat", "live"):
                page.find(f"#tab-{view}").click()
                if view == "live":
                    page.until("cards", lambda: len(page.all("#live .card")) == 10)
                page.driver.save_screenshot(str(folder / f"{view}-{width}-{theme}.png"))
        page.find("#tab-chat").click()


TESTS = [round_trip, parameters_are_sent, stop_and_regenerate, reload_keeps, reload_keeps_what_has_come, errors_are_shown, code_is_text,
         reasoning_and_calls_are_kept, live_view_has_a_key_of_its_own, export_and_import, keyboard, live_view, nothing_is_blocked]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--serve", nargs=2, metavar=("PROGRAM", "MODEL"))
    parser.add_argument("--long-answers", type=int, metavar="TOKENS")
    parser.add_argument("--screenshots", type=Path)
    arguments = parser.parse_args()
    driver, why = find_chromium()
    if not driver:
        print(f"skipped: {why}")
        sys.exit(SKIPPED)
    process, failed = None, 0
    try:
        if arguments.serve:
            program, model = arguments.serve
            process = subprocess.Popen([program, "serve", model, "--port", "0", "--threads", "1"], stdout=subprocess.PIPE, text=True)
            arguments.url = process.stdout.readline().split()[4]
        server, url = (None, arguments.url) if arguments.url else fake_server.start()
        driver.set_window_size(1400, 900)
        page = Page(driver, url, 400 if server else arguments.long_answers)
        page.open()
        for test in TESTS:
            try:
                test(page, server)
                print(f"ok      {test.__name__}", flush=True)
            except Exception as error:  # pylint: disable=broad-except
                failed += 1
                print(f"FAILED  {test.__name__}: {type(error).__name__}: {error}", flush=True)
        if arguments.screenshots:
            page.new()
            page.say("Once upon a time")
            page.answer()
            if server:
                page.say("Show me some code")
                page.answer()
            screenshots(page, arguments.screenshots)
    finally:
        driver.quit()
        if process:
            process.terminate()
            failed += process.wait(timeout=TIMEOUT) != 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
