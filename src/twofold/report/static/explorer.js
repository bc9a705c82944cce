// The explorer: two sliders, a map and fields that choose a gate, the numbers of that gate, and the command that fits it.

const GRID_STEP_OF_CSV = 4; // every fourth threshold of each score, which keeps the saved table small
const ARROWS = { ArrowUp: [1, 0], ArrowDown: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] };

function formatPercent(share) {
  return `${(100 * share).toFixed(2)} %`;
}

function formatCount(count) {
  return count.toLocaleString("en");
}

function formatCountOf(count, all) {
  if (!all) return formatCount(count);
  return `${formatCount(count)} of ${formatCount(all)} (${((100 * count) / all).toFixed(1)} %)`;
}

// MSP is stored as log-odds, which most readers know as a probability.
function formatThreshold(tau, isLogOdds) {
  const text = `accept from ${formatDigits(tau, 6)}`;
  if (!isLogOdds) return text;
  const probability = 1 / (1 + Math.exp(-tau));
  return `${text} (probability ${formatDigits(probability, 6)})`;
}

// A threshold as the command line reads it: all digits, so that the gate decides just as the page does.
function formatOption(tau) {
  if (Number.isFinite(tau)) return String(tau);
  return tau > 0 ? "inf" : "-inf";
}

// Lines of the table of numbers: key, label, and the text for an evaluation on a grid.
const NUMBERS = [
  ["true_accept", "Correct and accepted (TA)", (point, total) => formatCountOf(point.true_accept, total.correct)],
  ["false_accept_mistakes", "Mistakes accepted (FA)", (point, total) => formatCountOf(point.false_accept_mistakes, total.wrong)],
  ["false_accept_ood", "Unknown accepted (FA)", (point, total) => formatCountOf(point.false_accept_ood, total.allUnknown)],
  ["false_reject", "Correct but rejected (FR)", (point, total) => formatCountOf(point.false_reject, total.correct)],
  ["coverage", "Coverage of known inputs", (point) => formatPercent(point.coverage)],
  ["risk", "Risk: failures among accepted", (point) => formatPercent(point.risk)],
  ["precision", "Precision", (point) => formatPercent(point.precision)],
  ["recall", "Recall", (point) => formatPercent(point.recall)],
  ["f1", "F1", (point) => formatPercent(point.f1)],
  ["cost", "Cost per input", (point) => point.cost.toFixed(4)],
];

class Explorer {
  constructor(data) {
    this.data = data;
    this.grids = data.pairs.map((pair) => new ThresholdGrid(pair));
    this.expected = { share: null, costs: { wrong: 1, unknown: 1, reject: 0.2 } }; // share null: as in the data
    this.cells = {}; // of the table of numbers, by key
    this.map = new SurfaceMap(byId("x-map"), (row, column) => this.go(row, column));
    this.fillPairs();
    this.listen();
    byId("x-share").disabled = !this.grids[0].unknownKinds.length;
    byId("x-note").textContent = data.note;
    this.selectPair(0);
  }

  fillPairs() {
    for (const [place, { pair }] of this.grids.entries()) {
      const option = document.createElement("option");
      option.value = place;
      option.textContent = pair.id === pair.ood ? pair.id : `${pair.id} + ${pair.ood}`;
      byId("x-pair").append(option);
    }
  }

  listen() {
    byId("x-pair").addEventListener("change", (event) => this.selectPair(Number(event.target.value)));
    byId("x-id").addEventListener("input", (event) => this.go(Number(event.target.value), this.column));
    byId("x-ood").addEventListener("input", (event) => this.go(this.row, Number(event.target.value)));
    byId("x-map").addEventListener("keydown", (event) => this.followArrow(event));
    byId("x-start").addEventListener("click", () => this.go(...this.grid.pair.start));
    byId("x-best").addEventListener("click", () => this.goToBest((point) => point.f1));
    byId("x-cheap").addEventListener("click", () => this.goToBest((point) => -point.cost));
    byId("x-goal").addEventListener("change", () => this.showPoint());
    byId("x-copy").addEventListener("click", () => this.copyCommand());
    byId("x-share").addEventListener("input", (event) => this.expectShare(event.target.valueAsNumber));
    for (const name of Object.keys(this.expected.costs)) {
      byId(`x-${name}`).addEventListener("input", (event) => this.expectCost(name, event.target.valueAsNumber));
    }
  }

  // Choices of the reader

  selectPair(place) {
    this.grid = this.grids[place];
    const { pair, total } = this.grid;
    byId("x-id").max = this.grid.rows - 1;
    byId("x-ood").max = this.grid.columns - 1;
    byId("x-id-name").textContent = pair.id;
    byId("x-ood-name").textContent = pair.ood;
    byId("x-share").placeholder = `${(100 * this.shareInData(total)).toFixed(1)} as here`;
    this.layOutNumbers();
    this.map.draw(this.grid, this.expected);
    this.go(...pair.start);
  }

  // Choose a pair of thresholds by its place on the grid; places beyond an edge are the edge.
  go(row, column) {
    this.row = Math.min(Math.max(row, 0), this.grid.rows - 1);
    this.column = Math.min(Math.max(column, 0), this.grid.columns - 1);
    byId("x-id").value = this.row;
    byId("x-ood").value = this.column;
    this.showPoint();
  }

  goToBest(valueOf) {
    this.go(...this.grid.findBest(valueOf, this.expected));
  }

  followArrow(event) {
    const step = ARROWS[event.key];
    if (!step) return;
    event.preventDefault(); // the arrow would also scroll the page
    this.go(this.row + step[0], this.column + step[1]);
  }

  expectShare(percent) {
    const isShare = percent >= 0 && percent < 100;
    this.expected.share = isShare ? percent / 100 : null;
    this.map.draw(this.grid, this.expected);
    this.showPoint();
  }

  // A field that is empty, or holds no cost, leaves the last cost.
  expectCost(name, cost) {
    if (!(cost >= 0) || !Number.isFinite(cost)) return;
    this.expected.costs[name] = cost;
    this.showPoint();
  }

  shareInData(total) {
    return total.allUnknown / (total.known + total.allUnknown);
  }

  // Numbers

  layOutNumbers() {
    const body = byId("x-numbers").tBodies[0];
    body.replaceChildren();
    const { unknownKinds } = this.grid;
    for (const [key, label] of NUMBERS) {
      this.addNumber(body, key, label);
      if (key !== "false_accept_ood" || unknownKinds.length < 2) continue;
      for (const kind of unknownKinds) this.addNumber(body, `kind-${kind}`, `– of them ${this.data.words[kind]}`);
    }
  }

  addNumber(body, key, label) {
    const row = body.insertRow();
    const head = document.createElement("th");
    head.scope = "row";
    head.textContent = label;
    row.append(head);
    this.cells[key] = row.insertCell();
    this.cells[key].id = `x-${key}`;
  }

  // Write a text, and beside it the exact value for scripts and tests.
  show(element, text, value) {
    element.textContent = text;
    element.dataset.value = value;
  }

  showPoint() {
    const { pair, total, tauId, tauOod } = this.grid;
    const point = this.grid.evaluate(this.row, this.column, this.expected);
    this.showNumbers(point, total);
    const outcome = `coverage ${formatPercent(point.coverage)}, risk ${formatPercent(point.risk)}`;
    this.showThreshold("x-id", tauId[this.row], pair.odds[0], outcome);
    this.showThreshold("x-ood", tauOod[this.column], pair.odds[1], outcome);
    this.map.mark(this.row, this.column);
    this.showCommands(point);
  }

  showNumbers(point, total) {
    for (const [key, , format] of NUMBERS) this.show(this.cells[key], format(point, total), point[key]);
    const { unknownKinds } = this.grid;
    if (unknownKinds.length < 2) return;
    unknownKinds.forEach((kind, k) => {
      this.show(this.cells[`kind-${kind}`], formatCountOf(point.unknown[k], total.unknown[k]), point.unknown[k]);
    });
  }

  showThreshold(slider, tau, isLogOdds, outcome) {
    const text = formatThreshold(tau, isLogOdds);
    this.show(byId(`${slider}-tau`), text, tau);
    byId(slider).setAttribute("aria-valuetext", `${text}; ${outcome}`);
  }

  // Commands

  showCommands(point) {
    const { pair } = this.grid;
    const canFit = Boolean(pair.command);
    byId("x-command").textContent = canFit ? this.fitCommand(point) : `No command: ${pair.gate}.`;
    byId("x-card").textContent = canFit ? `twofold gate card ${this.gateFolder()} ${pair.card}` : "";
    byId("x-card").hidden = !canFit;
    byId("x-copy").disabled = !canFit;
  }

  // Each goal has its own folder, so that no command overwrites the gate of another.
  gateFolder() {
    return `${this.grid.pair.folder}-${byId("x-goal").value}`;
  }

  fitCommand(point) {
    const goal = byId("x-goal").value;
    const words = [this.grid.pair.command, `--objective ${goal}`];
    words.push(...this.goalOptions(goal, point));
    if (this.data.share) words.push(`--ood-share ${this.expected.share ?? this.shareInData(this.grid.total)}`);
    words.push(`--out ${this.gateFolder()}`, "--replace");
    return words.join(" ");
  }

  // What the objective needs. Rates are rounded to the side on which the chosen point stays feasible.
  goalOptions(goal, point) {
    if (goal === "given") return this.thresholdOptions();
    if (goal === "coverage") return [`--coverage ${Math.max(Math.floor(point.coverage * 1e4) / 1e4, 0.0001)}`];
    if (goal === "risk") return [`--risk ${Math.min(Math.ceil(point.risk * 1e4) / 1e4, 0.9999)}`];
    if (goal === "cost") {
      const { wrong, unknown, reject } = this.expected.costs;
      return [`--cost-wrong ${wrong}`, `--cost-ood ${unknown}`, `--cost-reject ${reject}`];
    }
    return [];
  }

  // A gate of one score has one threshold: an input must pass both of the page, so the higher of them.
  thresholdOptions() {
    const { pair, tauId, tauOod } = this.grid;
    const [id, ood] = [tauId[this.row], tauOod[this.column]];
    if (pair.id === pair.ood) return [`--tau-id=${formatOption(Math.max(id, ood))}`];
    return [`--tau-id=${formatOption(id)}`, `--tau-ood=${formatOption(ood)}`];
  }

  async copyCommand() {
    const button = byId("x-copy");
    const command = byId("x-command");
    try {
      await navigator.clipboard.writeText(command.textContent);
    } catch {
      // pages opened from disk may have no clipboard
      getSelection().selectAllChildren(command);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => {
      button.textContent = "Copy command";
    }, 1500);
  }

  // The surface as a table, for the button that saves it.
  surfaceTable() {
    const table = [["tau_id", "tau_ood", "f1", "risk", "coverage"]];
    for (let row = 0; row < this.grid.rows; row += GRID_STEP_OF_CSV) {
      for (let column = 0; column < this.grid.columns; column += GRID_STEP_OF_CSV) {
        const { f1, risk, coverage } = this.grid.evaluate(row, column, this.expected);
        table.push([this.grid.tauId[row], this.grid.tauOod[column], f1, risk, coverage]);
      }
    }
    return table;
  }
}
