// Opens a page of `explain --html` in headless Chromium, clicks as a person would, and prints what is there then, as JSON.
// Usage: node page.mjs PAGE.html [PICTURE.png [WIDTH HEIGHT]]
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, writeFileSync, existsSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

const [page, picture, width = "1500", height = "1250"] = process.argv.slice(2);
const profile = mkdtempSync(join(tmpdir(), "eutectic-page-"));
const browser = spawn(process.env.CHROMIUM ?? "chromium", [
  "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0", `--user-data-dir=${profile}`,
  `--window-size=${width},${height}`, "about:blank",
], { stdio: "ignore" });
const sleep = ms => new Promise(done => setTimeout(done, ms));
const end = code => { browser.kill("SIGKILL"); setTimeout(() => { try { rmSync(profile, { recursive: true, force: true }); } catch {} process.exit(code); }, 200); };
try {
  const portFile = join(profile, "DevToolsActivePort");
  for (let n = 0; n < 600 && !existsSync(portFile); n++) await sleep(100);
  await sleep(200);
  const port = readFileSync(portFile, "utf8").split("\n")[0];
  const targets = await (await fetch(`http://127.0.0.1:${port}/json`)).json();
  const socket = new WebSocket(targets.find(t => t.type === "page").webSocketDebuggerUrl);
  await new Promise((done, fail) => { socket.onopen = done; socket.onerror = fail; });
  let number = 0;
  const waiting = new Map(), problems = [];
  let loaded;
  const load = new Promise(done => loaded = done);
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.id) { waiting.get(message.id)?.(message); waiting.delete(message.id); }
    if (message.method === "Page.loadEventFired") loaded();
    if (message.method === "Runtime.exceptionThrown") problems.push(message.params.exceptionDetails.exception?.description ?? message.params.exceptionDetails.text);
    if (message.method === "Network.requestWillBeSent" && !message.params.request.url.startsWith("file:")) problems.push(`it asks for ${message.params.request.url}`);
  };
  const send = (method, params = {}) => new Promise(done => { waiting.set(++number, done); socket.send(JSON.stringify({ id: number, method, params })); });
  const evaluate = async expression => {
    const { result, error } = await send("Runtime.evaluate", { expression, returnByValue: true });
    if (error || result.exceptionDetails) throw new Error(JSON.stringify(error ?? result.exceptionDetails));
    return result.result.value;
  };
  // While a page scrolls, clicks land elsewhere.
  await send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-reduced-motion", value: "reduce" }] });
  await send("Page.enable"); await send("Runtime.enable"); await send("Network.enable");
  await send("Page.navigate", { url: "file://" + resolve(page) });
  await load;
  // Of elements of this selector the nth is brought into view and clicked in its middle.
  const click = async (selector, nth = 0) => {
    const { x, y } = await evaluate(`(() => { const n = document.querySelectorAll(${JSON.stringify(selector)})[${nth}]; n.scrollIntoView({ block: "center", inline: "center" }); const r = n.getBoundingClientRect(); return { x: r.x + r.width / 2, y: r.y + r.height / 2 }; })()`);
    for (const type of ["mousePressed", "mouseReleased"]) await send("Input.dispatchMouseEvent", { type, x, y, button: "left", clickCount: 1 });
    await sleep(150);
  };
  const details = () => evaluate(`({
    title: document.querySelector("#details h2")?.textContent, ops: [...document.querySelectorAll("#details .ops li")].map(n => n.textContent),
    reads: [...document.querySelectorAll("#details .reads li")].map(n => n.textContent), rules: [...document.querySelectorAll("#details .rules a")].map(n => n.textContent),
    facts: [...document.querySelectorAll("#details .facts div")].map(n => n.textContent) })`);
  const shown = {
    title: await evaluate("document.title"),
    kernels: await evaluate(`document.querySelectorAll("#graph .kernel").length`),
    edges: await evaluate(`document.querySelectorAll("#graph .edge").length`),
    rows: await evaluate(`document.querySelectorAll("#table tbody tr").length`),
    // Boxes that lie over one another could not be read.
    overlaps: await evaluate(`(() => { const boxes = [...document.querySelectorAll("#graph rect.box, #graph .port rect")].map(n => n.getBBox()); let n = 0; for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length; j++) { const [a, b] = [boxes[i], boxes[j]]; if (a.x < b.x + b.width - 1 && b.x < a.x + a.width - 1 && a.y < b.y + b.height - 1 && b.y < a.y + a.height - 1) n++; } return n; })()`),
    first: await details(),
  };
  await click("#graph .kernel", 0);
  shown.clicked = await details();
  shown.selected = await evaluate(`[...document.querySelectorAll("#graph .kernel.on")].map(n => n.dataset.id)`);
  if (shown.clicked.rules.length) {
    await click("#details .rules a");
    shown.rule = await evaluate(`[...document.querySelectorAll("#rules details")].filter(n => n.open).map(n => ({ name: n.dataset.name, text: n.querySelector("pre").textContent }))[0]`);
  }
  await click("#table th", 3);
  shown.slowest = await evaluate(`document.querySelector("#table tbody tr").dataset.id`);
  if (picture) {
    await evaluate("scrollTo(0, 0)");
    await click("#share div", Math.floor(shown.kernels / 2));
    await sleep(900);
    const { result } = await send("Page.captureScreenshot", { format: "png", captureBeyondViewport: false });
    writeFileSync(picture, Buffer.from(result.data, "base64"));
  }
  console.log(JSON.stringify({ ...shown, problems }));
  end(0);
} catch (error) {
  console.error(error);
  end(1);
}
