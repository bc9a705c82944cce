// The map of the explorer: F1 of every pair of thresholds, in quantiles of both scores.

const SVG_NAMESPACE = "http://www.w3.org/2000/svg";
const MAP = { left: 62, top: 8, side: 360, scaleTop: 426, scaleLeft: 152, scaleSteps: 40 }; // in the units of its viewBox
const COLOURS = [[0, 34, 78], [66, 78, 108], [124, 123, 120], [188, 175, 111], [255, 233, 69]]; // cividis, dark to bright
const LONGEST_NAME = 34; // letters of a score beside an axis

// Mix the colours; 0 is the darkest and 1 the brightest.
function mixColour(share) {
  const position = Math.min(Math.max(share, 0), 1) * (COLOURS.length - 1);
  const darker = Math.min(Math.floor(position), COLOURS.length - 2);
  const rest = position - darker;
  return COLOURS[darker].map((value, channel) => value + rest * (COLOURS[darker + 1][channel] - value));
}

function clipName(name) {
  return name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name;
}

// Round for reading; infinite thresholds stay words.
function formatDigits(value, digits) {
  return Number.isFinite(value) ? String(Number(value.toPrecision(digits))) : String(value);
}

class SurfaceMap {
  // svg: the element to draw in; choose(row, column): called when someone points at a pair of thresholds.
  constructor(svg, choose) {
    this.svg = svg;
    let isHeld = false;
    const chooseAt = (event) => {
      const cell = this.locate(event);
      if (cell) choose(...cell);
    };
    svg.addEventListener("pointerdown", (event) => {
      isHeld = true;
      chooseAt(event);
    });
    svg.addEventListener("pointermove", (event) => {
      if (isHeld && event.buttons) chooseAt(event);
    });
    addEventListener("pointerup", () => {
      isHeld = false;
    });
  }

  x(column) {
    return MAP.left + ((column + 0.5) / this.grid.columns) * MAP.side;
  }

  y(row) {
    return MAP.top + MAP.side - ((row + 0.5) / this.grid.rows) * MAP.side;
  }

  // Find the row and column under the pointer; null beside the map.
  locate(event) {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.svg.getScreenCTM().inverse());
    const column = Math.floor(((point.x - MAP.left) / MAP.side) * this.grid.columns);
    const row = Math.floor(((MAP.top + MAP.side - point.y) / MAP.side) * this.grid.rows);
    const isInside = row >= 0 && row < this.grid.rows && column >= 0 && column < this.grid.columns;
    return isInside ? [row, column] : null;
  }

  add(name, attributes, text) {
    const element = document.createElementNS(SVG_NAMESPACE, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    this.svg.append(element);
    return element;
  }

  draw(grid, expected) {
    this.grid = grid;
    this.svg.replaceChildren();
    const range = this.drawSurface(expected);
    this.drawAxes();
    this.drawScale(range);
    const [row, column] = grid.findBest((point) => point.f1, expected);
    this.add("circle", { class: "star", cx: this.x(column), cy: this.y(row), r: 8 });
    // The dark line under the white one keeps the cross visible on bright and on dark cells.
    this.shadow = this.add("path", { class: "under", fill: "none" });
    this.cross = this.add("path", { class: "cross", fill: "none" });
    this.spot = this.add("circle", { class: "spot", r: 5 });
  }

  // Draw one pixel per pair of thresholds, which the browser scales up; return the values at both ends of the colours.
  drawSurface(expected) {
    const { rows, columns } = this.grid;
    const f1 = new Float64Array(rows * columns);
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        f1[row * columns + column] = this.grid.evaluate(row, column, expected).f1;
      }
    }
    const high = f1.reduce((a, b) => Math.max(a, b));
    const low = Math.max(f1.reduce((a, b) => Math.min(a, b)), high / 2); // the colours are for what one would choose among
    const canvas = document.createElement("canvas");
    canvas.width = columns;
    canvas.height = rows;
    const context = canvas.getContext("2d");
    const image = context.createImageData(columns, rows);
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const colour = mixColour((f1[row * columns + column] - low) / (high - low || 1));
        const pixel = (rows - 1 - row) * columns + column; // rows of an image run downwards
        image.data.set([...colour, 255], 4 * pixel);
      }
    }
    context.putImageData(image, 0, 0);
    this.add("image", {
      x: MAP.left,
      y: MAP.top,
      width: MAP.side,
      height: MAP.side,
      preserveAspectRatio: "none",
      href: canvas.toDataURL(),
      style: "image-rendering:pixelated",
    });
    return { low, high };
  }

  drawAxes() {
    const { grid } = this;
    const bottom = MAP.top + MAP.side;
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      const row = Math.round(share * (grid.rows - 1));
      const column = Math.round(share * (grid.columns - 1));
      this.add("text", { class: "t m", x: this.x(column), y: bottom + 16 }, formatDigits(grid.tauOod[column], 3));
      this.add("text", { class: "t e", x: MAP.left - 6, y: this.y(row) + 4 }, formatDigits(grid.tauId[row], 3));
    }
    const centre = MAP.top + MAP.side / 2;
    const below = { class: "t m", x: MAP.left + MAP.side / 2, y: bottom + 34 };
    const beside = { class: "t m", x: 13, y: centre, transform: `rotate(-90 13 ${centre})` };
    this.add("text", below, `threshold on ${clipName(grid.pair.ood)}`);
    this.add("text", beside, `threshold on ${clipName(grid.pair.id)}`);
  }

  drawScale({ low, high }) {
    for (let step = 0; step < MAP.scaleSteps; step++) {
      const colour = mixColour(step / (MAP.scaleSteps - 1)).map(Math.round);
      const x = MAP.scaleLeft + 4.5 * step;
      this.add("rect", { x, y: MAP.scaleTop, width: 5, height: 10, fill: `rgb(${colour})` });
    }
    this.add("text", { class: "t e", x: MAP.scaleLeft - 6, y: MAP.scaleTop + 9 }, `F1 ≤ ${low.toFixed(3)}`);
    this.add("text", { class: "t", x: MAP.scaleLeft + 188, y: MAP.scaleTop + 9 }, high.toFixed(3));
  }

  // Move the cross to a pair of thresholds.
  mark(row, column) {
    const x = this.x(column);
    const y = this.y(row);
    const path = `M${MAP.left} ${y}H${MAP.left + MAP.side}M${x} ${MAP.top}V${MAP.top + MAP.side}`;
    this.shadow.setAttribute("d", path);
    this.cross.setAttribute("d", path);
    this.spot.setAttribute("cx", x);
    this.spot.setAttribute("cy", y);
  }
}
