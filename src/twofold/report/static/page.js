"use strict";
(() => {
  const $ = (id) => document.getElementById(id);
  const data = JSON.parse($("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";

  // Theme: the system's, until someone chooses.
  const root = document.documentElement;
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const theme = $("theme");
  const labelButton = () => { theme.textContent = dark() ? "Light" : "Dark"; theme.setAttribute("aria-label", `Use ${dark() ? "light" : "dark"} colours`); };
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; labelButton(); });
  labelButton();

  // Files.
  const save = (name, content, type) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  };
  // A text that a spreadsheet could take for a formula gets an apostrophe in front; numbers stay.
  const formula = (text) => /^'*[=+\-@\t\r]/.test(text) && !Number.isFinite(Number(text));
  const escaped = (cell) => (formula(String(cell ?? "")) ? `'${cell}` : String(cell ?? ""));
  const quoted = (cell) => (/[",\n\r]/.test(cell) ? `"${escaped(cell).replaceAll('"', '""')}"` : escaped(cell));
  const csv = (rows) => rows.map((row) => row.map(quoted).join(",")).join("\n") + "\n";
  // A drawing on its own: light colours, its style inside.
  const LIGHT = "--page:#fff;--text:#1b1f24;--soft:#5b6470;--grid:#e4e7eb;--k0:#0072b2;--k1:#d55e00;--k2:#00845f;--k3:#b8548d;--k4:#b37a00;--k5:#3d8fc6;--k6:#5b6470";
  const standAlone = (svg) => {
    const copy = svg.cloneNode(true);
    const [, , w, h] = svg.getAttribute("viewBox").split(" ").map(Number);
    copy.setAttribute("width", w);
    copy.setAttribute("height", h);
    const style = document.createElementNS(SVG, "style");
    style.textContent = `svg{${LIGHT};background:#fff}\n${$("chart-style").textContent}`;
    copy.prepend(style);
    return [new XMLSerializer().serializeToString(copy), w, h];
  };
  const png = (svg, name) => {
    const [text, w, h] = standAlone(svg);
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      canvas.width = 3 * w;
      canvas.height = 3 * h;
      const paper = canvas.getContext("2d");
      paper.fillStyle = "#fff";
      paper.fillRect(0, 0, canvas.width, canvas.height);
      paper.drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => save(name, blob));
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  };
  const addTools = (where, buttons) => {
    const box = document.createElement("div");
    box.className = "tools";
    for (const [label, description, action] of buttons) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      button.setAttribute("aria-label", description);
      button.addEventListener("click", action);
      box.append(button);
    }
    where.append(box);
  };
  for (const figure of document.querySelectorAll("figure[data-figure]")) {
    const key = figure.dataset.figure;
    const svg = figure.querySelector("svg");
    addTools(figure.querySelector(".head"), [
      ["SVG", `Download ${key} as SVG`, () => save(`${key}.svg`, standAlone(svg)[0], "image/svg+xml")],
      ["PNG", `Download ${key} as PNG`, () => png(svg, `${key}.png`)],
      ["CSV", `Download the data of ${key} as CSV`, () => save(`${key}.csv`, csv(rowsOf(key)), "text/csv")],
    ]);
  }
  const rowsOf = (key) => (key === "surface" ? explorer.rows() : [data.figures[key].columns, ...data.figures[key].rows]);
  const cellValue = (cell) => cell.dataset.value ?? cell.textContent;
  for (const table of document.querySelectorAll("table[data-table]")) {
    const all = () => [...table.rows].map((row) => [...row.cells].map(cellValue));
    addTools(table.caption, [["CSV", `Download ${table.dataset.table} as CSV`, () => save(`${table.dataset.table}.csv`, csv(all()), "text/csv")]]);
    if (table.tBodies[0].rows.length < 8 || table.dataset.fixed) continue;
    [...table.tHead.rows[0].cells].forEach((head, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const value = (row) => { const text = cellValue(row.cells[place]); const x = Number(text); return text === "" || Number.isNaN(x) ? text : x; };
        const order = (a, b) => (typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1);
        const rows = [...table.tBodies[0].rows].sort((a, b) => (up ? 1 : -1) * order(value(a), value(b)));
        rows.forEach((row) => row.classList.remove("first"));
        table.tBodies[0].append(...rows);
      });
    });
  }

  // The explorer.
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  const decodePair = (pair) => {
    const tauId = new Float64Array(bytes(pair.tau_id));
    const tauOod = new Float64Array(bytes(pair.tau_ood));
    const kind = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array, 8: BigUint64Array }[pair.bytes];
    const counts = new kind(bytes(pair.counts));
    const m = tauId.length, n = tauOod.length;
    const passed = pair.kinds.map((_, k) => {
      const sums = new Float64Array((m + 1) * (n + 1));
      for (let i = m - 1; i >= 0; i--) {
        for (let j = n - 1; j >= 0; j--) {
          const own = Number(counts[(k * m + i) * n + j]);
          sums[i * (n + 1) + j] = own + sums[(i + 1) * (n + 1) + j] + sums[i * (n + 1) + j + 1] - sums[(i + 1) * (n + 1) + j + 1];
        }
      }
      return sums;
    });
    return { ...pair, tauId, tauOod, m, n, passed };
  };
  const explorer = (() => {
    if (!$("explorer") || !data.explorer) return null;
    const pairs = data.explorer.pairs.map(decodePair);
    let pair = pairs[0], i = 0, j = 0;
    const costs = { wrong: 1, unknown: 1, reject: 0.2 };
    let share = null;

    const weight = () => {
      const known = pair.passed[0][0] + pair.passed[1][0];
      const unknown = pair.passed.slice(2).reduce((sum, table) => sum + table[0], 0);
      return share === null || !unknown ? 1 : (share / (1 - share)) * (known / unknown);
    };
    const evaluate = (a, b) => {
      const place = a * (pair.n + 1) + b;
      const [right, wrong, ...unknown] = pair.passed.map((table) => table[place]);
      const [allRight, allWrong, ...allUnknown] = pair.passed.map((table) => table[0]);
      const out = unknown.reduce((x, y) => x + y, 0), allOut = allUnknown.reduce((x, y) => x + y, 0);
      const w = weight(), ids = allRight + allWrong, taken = right + wrong + w * out;
      const paid = costs.wrong * wrong + costs.unknown * w * out + costs.reject * (ids - right - wrong + w * (allOut - out));
      return {
        true_accept: right, false_accept_ood: out, false_accept_mistakes: wrong, false_reject: allRight - right,
        true_reject: allWrong - wrong + allOut - out, unknown, allUnknown, ids, allRight, allOut,
        precision: taken ? right / taken : 0, recall: right / ids, f1: (2 * right) / (taken + ids),
        risk: taken ? 1 - right / taken : 0, coverage: (right + wrong) / ids, cost: paid / (ids + w * allOut),
      };
    };

    const formatPercent = (x) => `${(100 * x).toFixed(2)} %`;
    const formatCount = (x) => x.toLocaleString("en");
    const formatShare = (x, all) => (all ? `${formatCount(x)} of ${formatCount(all)} (${(100 * x / all).toFixed(1)} %)` : formatCount(x));
    const LINES = [
      ["true_accept", "Correct and accepted (TA)", (p) => formatShare(p.true_accept, p.allRight)],
      ["false_accept_mistakes", "Mistakes accepted (FA)", (p) => formatShare(p.false_accept_mistakes, p.ids - p.allRight)],
      ["false_accept_ood", "Unknown accepted (FA)", (p) => formatShare(p.false_accept_ood, p.allOut)],
      ["false_reject", "Correct but rejected (FR)", (p) => formatShare(p.false_reject, p.allRight)],
      ["coverage", "Coverage of known inputs", (p) => formatPercent(p.coverage)],
      ["risk", "Risk: failures among accepted", (p) => formatPercent(p.risk)],
      ["precision", "Precision", (p) => formatPercent(p.precision)],
      ["recall", "Recall", (p) => formatPercent(p.recall)],
      ["f1", "F1", (p) => formatPercent(p.f1)],
      ["cost", "Cost per input", (p) => p.cost.toFixed(4)],
    ];
    const body = $("x-numbers").tBodies[0];
    const cells = {};
    const addRow = (key, label) => {
      const row = body.insertRow();
      const head = document.createElement("th");
      head.scope = "row";
      head.textContent = label;
      row.append(head);
      cells[key] = row.insertCell();
      cells[key].id = `x-${key}`;
    };
    const layoutNumbers = () => {
      body.replaceChildren();
      for (const [key, label] of LINES) {
        addRow(key, label);
        if (key === "false_accept_ood" && pair.kinds.length > 3) {
          for (const kind of pair.kinds.slice(2)) addRow(`kind-${kind}`, `– of them ${data.explorer.words[kind]}`);
        }
      }
    };

    // The map: F1 of every pair, in quantiles of both scores.
    const X0 = 62, Y0 = 8, SIDE = 360;
    const map = $("x-map");
    const STOPS = [[0, 34, 78], [66, 78, 108], [124, 123, 120], [188, 175, 111], [255, 233, 69]];
    const colour = (t) => {
      const x = Math.min(Math.max(t, 0), 1) * (STOPS.length - 1), k = Math.min(Math.floor(x), STOPS.length - 2), r = x - k;
      return STOPS[k].map((c, q) => c + r * (STOPS[k + 1][q] - c));
    };
    const addElement = (name, attributes, text) => {
      const one = document.createElementNS(SVG, name);
      for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
      if (text !== undefined) one.textContent = text;
      map.append(one);
      return one;
    };
    const short = (x) => (Number.isFinite(x) ? String(Number(x.toPrecision(3))) : String(x));
    let marks = {};
    const px = (b) => X0 + ((b + 0.5) / pair.n) * SIDE, py = (a) => Y0 + SIDE - ((a + 0.5) / pair.m) * SIDE;
    const findBest = (value) => {
      let top = -Infinity, found = [0, 0];
      for (let a = 0; a < pair.m; a++) for (let b = 0; b < pair.n; b++) {
        const v = value(evaluate(a, b));
        if (v > top) { top = v; found = [a, b]; }
      }
      return found;
    };
    const drawMap = () => {
      const canvas = document.createElement("canvas");
      canvas.width = pair.n;
      canvas.height = pair.m;
      const paper = canvas.getContext("2d");
      const image = paper.createImageData(pair.n, pair.m);
      let low = Infinity, high = -Infinity;
      const f1 = new Float64Array(pair.m * pair.n);
      for (let a = 0; a < pair.m; a++) for (let b = 0; b < pair.n; b++) {
        const v = (f1[a * pair.n + b] = evaluate(a, b).f1);
        low = Math.min(low, v);
        high = Math.max(high, v);
      }
      low = Math.max(low, high / 2); // the colours are for what one would choose among
      for (let a = 0; a < pair.m; a++) for (let b = 0; b < pair.n; b++) {
        const [r, g, u] = colour((f1[a * pair.n + b] - low) / (high - low || 1));
        image.data.set([r, g, u, 255], 4 * ((pair.m - 1 - a) * pair.n + b));
      }
      paper.putImageData(image, 0, 0);
      map.replaceChildren();
      addElement("image", { x: X0, y: Y0, width: SIDE, height: SIDE, preserveAspectRatio: "none", href: canvas.toDataURL(), style: "image-rendering:pixelated" });
      for (const t of [0, 0.25, 0.5, 0.75, 1]) {
        const b = Math.round(t * (pair.n - 1)), a = Math.round(t * (pair.m - 1));
        addElement("text", { class: "t m", x: px(b), y: Y0 + SIDE + 16 }, short(pair.tauOod[b]));
        addElement("text", { class: "t e", x: X0 - 6, y: py(a) + 4 }, short(pair.tauId[a]));
      }
      const cut = (name) => (name.length > 34 ? `${name.slice(0, 33)}…` : name);
      addElement("text", { class: "t m", x: X0 + SIDE / 2, y: Y0 + SIDE + 34 }, `threshold on ${cut(pair.ood)}`);
      addElement("text", { class: "t m", x: 13, y: Y0 + SIDE / 2, transform: `rotate(-90 13 ${Y0 + SIDE / 2})` }, `threshold on ${cut(pair.id)}`);
      for (let k = 0; k < 40; k++) addElement("rect", { x: X0 + 90 + 4.5 * k, y: 426, width: 5, height: 10, fill: `rgb(${colour(k / 39).map(Math.round)})` });
      addElement("text", { class: "t e", x: X0 + 84, y: 435 }, `F1 ≤ ${low.toFixed(3)}`);
      addElement("text", { class: "t", x: X0 + 278, y: 435 }, high.toFixed(3));
      const [a, b] = findBest((p) => p.f1);
      addElement("circle", { class: "star", cx: px(b), cy: py(a), r: 8 });
      marks = { under: addElement("path", { class: "under", fill: "none" }), cross: addElement("path", { class: "cross", fill: "none" }), spot: addElement("circle", { class: "spot", r: 5 }) };
    };
    const choosePoint = (event) => {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(map.getScreenCTM().inverse());
      const b = Math.floor(((point.x - X0) / SIDE) * pair.n), a = Math.floor(((Y0 + SIDE - point.y) / SIDE) * pair.m);
      if (a >= 0 && a < pair.m && b >= 0 && b < pair.n) go(a, b);
    };
    let held = false;
    map.addEventListener("pointerdown", (event) => { held = true; choosePoint(event); });
    map.addEventListener("pointermove", (event) => { if (held && event.buttons) choosePoint(event); });
    addEventListener("pointerup", () => { held = false; });
    map.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
      if (!step) return;
      event.preventDefault();
      go(i + step[0], j + step[1]);
    });

    // The command.
    const gateCommand = () => {
      if (!pair.command) return "";
      const p = evaluate(i, j), goal = $("x-goal").value, down = (x) => Math.floor(x * 1e4) / 1e4, up = (x) => Math.ceil(x * 1e4) / 1e4;
      let asked = "";
      const number = (tau) => (Number.isFinite(tau) ? String(tau) : tau > 0 ? "inf" : "-inf");
      const alone = pair.id === pair.ood;
      if (goal === "given") asked = alone ? ` --tau-id=${number(Math.max(pair.tauId[i], pair.tauOod[j]))}` : ` --tau-id=${number(pair.tauId[i])} --tau-ood=${number(pair.tauOod[j])}`;
      if (goal === "coverage") asked = ` --coverage ${Math.max(down(p.coverage), 0.0001)}`;
      if (goal === "risk") asked = ` --risk ${Math.min(up(p.risk), 0.9999)}`;
      if (goal === "cost") asked = ` --cost-wrong ${costs.wrong} --cost-ood ${costs.unknown} --cost-reject ${costs.reject}`;
      // The share that the numbers above are for: the reader's, or that of the data shown.
      const meant = share === null ? p.allOut / (p.ids + p.allOut) : share;
      const expected = data.explorer.share ? ` --ood-share ${meant}` : "";
      return `${pair.command} --objective ${goal}${asked}${expected} --out ${pair.folder}-${goal} --replace`;
    };
    const cardCommand = () => (pair.command ? `twofold gate card ${pair.folder}-${$("x-goal").value} ${pair.card}` : "");
    const formatThreshold = (tau, odds) => {
      const text = Number.isFinite(tau) ? String(Number(tau.toPrecision(6))) : String(tau);
      return odds ? `accept from ${text} (probability ${Number((1 / (1 + Math.exp(-tau))).toPrecision(6))})` : `accept from ${text}`;
    };
    const showPoint = () => {
      const p = evaluate(i, j);
      for (const [key, , format] of LINES) {
        cells[key].textContent = format(p);
        cells[key].dataset.value = p[key];
      }
      pair.kinds.slice(2).forEach((kind, k) => { if (cells[`kind-${kind}`]) { cells[`kind-${kind}`].textContent = formatShare(p.unknown[k], p.allUnknown[k]); cells[`kind-${kind}`].dataset.value = p.unknown[k]; } });
      $("x-id-tau").textContent = formatThreshold(pair.tauId[i], pair.odds[0]);
      $("x-id-tau").dataset.value = pair.tauId[i];
      const outcome = `coverage ${formatPercent(p.coverage)}, risk ${formatPercent(p.risk)}`;
      $("x-id").setAttribute("aria-valuetext", `${formatThreshold(pair.tauId[i], pair.odds[0])}; ${outcome}`);
      $("x-ood").setAttribute("aria-valuetext", `${formatThreshold(pair.tauOod[j], pair.odds[1])}; ${outcome}`);
      $("x-ood-tau").textContent = formatThreshold(pair.tauOod[j], pair.odds[1]);
      $("x-ood-tau").dataset.value = pair.tauOod[j];
      const path = `M${X0} ${py(i)}H${X0 + SIDE}M${px(j)} ${Y0}V${Y0 + SIDE}`;
      marks.under.setAttribute("d", path);
      marks.cross.setAttribute("d", path);
      marks.spot.setAttribute("cx", px(j));
      marks.spot.setAttribute("cy", py(i));
      $("x-command").textContent = gateCommand() || `No command: ${pair.gate}.`;
      $("x-card").textContent = cardCommand();
      $("x-card").hidden = !pair.command;
      $("x-copy").disabled = !pair.command;
    };
    const go = (a, b) => {
      i = Math.min(Math.max(a, 0), pair.m - 1);
      j = Math.min(Math.max(b, 0), pair.n - 1);
      $("x-id").value = i;
      $("x-ood").value = j;
      showPoint();
    };
    const selectPair = (place) => {
      pair = pairs[place];
      $("x-id").max = pair.m - 1;
      $("x-ood").max = pair.n - 1;
      $("x-id-name").textContent = pair.id;
      $("x-ood-name").textContent = pair.ood;
      const all = evaluate(0, 0);
      $("x-share").placeholder = `${((100 * all.allOut) / (all.ids + all.allOut)).toFixed(1)} as here`;
      layoutNumbers();
      drawMap();
      go(...pair.start);
    };
    for (const [place, one] of pairs.entries()) {
      const option = document.createElement("option");
      option.value = place;
      option.textContent = one.id === one.ood ? one.id : `${one.id} + ${one.ood}`;
      $("x-pair").append(option);
    }
    $("x-pair").addEventListener("change", (event) => selectPair(Number(event.target.value)));
    $("x-id").addEventListener("input", (event) => go(Number(event.target.value), j));
    $("x-ood").addEventListener("input", (event) => go(i, Number(event.target.value)));
    $("x-start").addEventListener("click", () => go(...pair.start));
    $("x-best").addEventListener("click", () => go(...findBest((p) => p.f1)));
    $("x-cheap").addEventListener("click", () => go(...findBest((p) => -p.cost)));
    $("x-goal").addEventListener("change", showPoint);
    const listenToCost = (id, key) => $(id).addEventListener("input", (event) => {
      const x = event.target.valueAsNumber;
      if (x >= 0 && Number.isFinite(x)) { costs[key] = x; showPoint(); }
    });
    listenToCost("x-wrong", "wrong");
    listenToCost("x-unknown", "unknown");
    listenToCost("x-reject", "reject");
    $("x-share").addEventListener("input", (event) => {
      const x = event.target.valueAsNumber;
      share = x >= 0 && x < 100 ? x / 100 : null;
      drawMap();
      showPoint();
    });
    $("x-share").disabled = pairs[0].kinds.length < 3;
    $("x-copy").addEventListener("click", async () => {
      const text = gateCommand();
      try {
        await navigator.clipboard.writeText(text);
      } catch {
        getSelection().selectAllChildren($("x-command"));
        document.execCommand("copy");
      }
      $("x-copy").textContent = "Copied";
      setTimeout(() => { $("x-copy").textContent = "Copy command"; }, 1500);
    });
    $("x-note").textContent = data.explorer.note;
    selectPair(0);
    return {
      rows: () => {
        const rows = [["tau_id", "tau_ood", "f1", "risk", "coverage"]];
        for (let a = 0; a < pair.m; a += 4) for (let b = 0; b < pair.n; b += 4) { const p = evaluate(a, b); rows.push([pair.tauId[a], pair.tauOod[b], p.f1, p.risk, p.coverage]); }
        return rows;
      },
      go, get place() { return [i, j]; }, get pair() { return pair; },
    };
  })();
  window.twofold = { explorer };
})();
