// A recorded run in the place of an agent: the time, and a map. Loaded before page.js, whose functions it uses.
"use strict";

globalThis.replay = (() => {
  const SPEEDS = [1, 2, 4];
  const UNITS_PER_MAP = 600;
  // Time and run that are shown; `since` is the browser's clock, in ms, at which `time` was set.
  const shown = { time: 0, run: 0, speed: 1, plays: true, since: performance.now(), end: 0 };
  let map = null;

  function now() {
    const elapsed = shown.plays ? ((performance.now() - shown.since) / 1000) * shown.speed : 0;
    return Math.min(shown.end, shown.time + elapsed);
  }

  function set(changes) {
    shown.time = now();
    shown.since = performance.now();
    Object.assign(shown, changes);
  }

  // What the page has learnt belongs to another time.
  function jump(changes) {
    set(changes);
    known = nothing();
    turn(null);
    look().catch(() => {});
  }

  // ---- map ----

  // The vehicle's way, coloured by the network that carries, with the units. Coordinates are in m, y upwards.
  function draw() {
    const points = [...map.way.map(([, x, y]) => [x, y]), ...map.units.map((unit) => unit.position_m)];
    const range = (place) => [Math.min(...points.map((p) => p[place])), Math.max(...points.map((p) => p[place]))];
    const [[left, right], [low, high]] = [range(0), range(1)];
    const size = Math.max(right - left, high - low, 50);
    const scale = UNITS_PER_MAP / size;
    const margin = 40;
    const place = ([x, y]) => [margin + (x - left) * scale, margin + (high - y) * scale];
    const [width, height] = [(right - left) * scale + 2 * margin, (high - low) * scale + 2 * margin];
    const box = el("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "map of the drive" });
    const stroke = (from, to, name) => {
      const steps = map.way.slice(from, to + 1).map(([, x, y]) => place([x, y]).map((one) => one.toFixed(1)).join(" "));
      box.append(el("path", { class: `way ${name}`, d: `M${steps.join("L")}` }));
    };
    stroke(0, map.way.length - 1, "road");
    for (let from = 0, to = 1; to < map.way.length; to++) {
      const carrier = map.way[from][3];
      if (to === map.way.length - 1 || map.way[to][3] !== carrier) {
        if (carrier !== null) stroke(from, to, `network-${carrier % 6}`);
        from = to;
      }
    }
    for (const unit of map.units) {
      const [x, y] = place(unit.position_m);
      const mark = `M${x} ${y - 9}L${x + 8} ${y + 6}L${x - 8} ${y + 6}Z`;
      box.append(el("path", { class: "unit", d: mark }), el("text", { x, y: y - 12, "text-anchor": "middle" }, unit.name));
    }
    const vehicle = el("circle", { class: "vehicle", r: 7 });
    box.append(vehicle);
    const scaleM = 10 ** Math.floor(Math.log10(size / 2));
    box.append(el("path", { class: "grid", d: `M${margin} ${height - 10}h${scaleM * scale}` }), el("text", { x: margin, y: height - 14 }, `${scaleM} m`));
    const key = map.paths.map((path, number) => el("span", { class: `key network-${number % 6}` }, `${path} carries`));
    $("#map figure").replaceChildren(box, el("figcaption", {}, ...key));
    map.move = (time) => {
      const next = map.way.findIndex(([t]) => t > time);
      const at = map.way[next < 0 ? map.way.length - 1 : Math.max(0, next - 1)];
      const [x, y] = place([at[1], at[2]]);
      vehicle.setAttribute("cx", x);
      vehicle.setAttribute("cy", y);
    };
  }

  async function load(run) {
    const loaded = await get(`/api/map?run=${run}`);
    if (run !== shown.run) return;
    map = loaded;
    if (map.way.length > 1) draw();
    else $("#map figure").replaceChildren("no positions were recorded");
  }

  // ---- controls ----

  function controls(overview) {
    const option = (name, value) => el("option", { value }, name);
    const runs = el("select", { id: "run", "aria-label": "run" }, ...overview.runs.map(option));
    const speeds = el("select", { id: "speed", "aria-label": "speed" }, ...SPEEDS.map((speed) => option(`× ${speed}`, speed)));
    const button = el("button", { type: "button", id: "play" }, "pause");
    const slider = el("input", { type: "range", id: "time", min: 0, max: overview.duration_s, step: 0.1, "aria-label": "time" });
    const bar = el("p", { class: "bar-of-time" }, runs, button, speeds, slider, el("output", { for: "time" }));
    const section = el("section", { id: "map" }, el("h2", {}, overview.title), bar, el("figure", {}));
    $("main").prepend(section);
    runs.addEventListener("change", () => {
      jump({ run: Number(runs.value), time: 0 });
      load(shown.run).catch((fault) => $("#map figure").replaceChildren(fault.message));
    });
    speeds.addEventListener("change", () => set({ speed: Number(speeds.value) }));
    slider.addEventListener("input", () => jump({ time: Number(slider.value) }));
    button.addEventListener("click", () => {
      const isOver = now() >= shown.end;
      if (isOver) jump({ time: 0, plays: true });
      else set({ plays: !shown.plays });
    });
  }

  function tick() {
    const time = now();
    if (document.activeElement !== $("#time") || shown.plays) $("#time").value = time;
    $("#map output").textContent = `${time.toFixed(1)} of ${shown.end.toFixed(0)} s`;
    $("#play").textContent = time >= shown.end ? "from the start" : shown.plays ? "pause" : "play";
    map?.move?.(time);
    requestAnimationFrame(tick);
  }

  async function begin() {
    const overview = await get("/api/replay");
    controls(overview);
    set({ end: overview.duration_s });
    // A link may name the moment: #t=12.5&run=1
    const named = new URLSearchParams(location.hash.slice(1));
    const [time, run] = [Number(named.get("t")) || 0, Number(named.get("run")) || 0];
    if (named.size > 0) jump({ time, run, plays: false });
    $("#run").value = shown.run;
    await load(shown.run);
    tick();
  }

  addEventListener("DOMContentLoaded", () => begin().catch((fault) => contact(fault.message, "lost")));
  return { isRun: true, now, clock: (s) => `${s.toFixed(1)} s`, moment: () => `?run=${shown.run}&t=${now().toFixed(2)}` };
})();
