"use strict";
// What a pair of thresholds accepts, counted from the numbers that twofold.report.threshold_grid packs into the page.

const COUNT_TYPES = { 1: Uint8Array, 2: Uint16Array, 4: Uint32Array, 8: BigUint64Array }; // by bytes per count

function decodeBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer;
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

// Both thresholds of a pair of scores, ascending, and how many inputs of each kind every pair of thresholds accepts.
// Row i stands for tauId[i], column j for tauOod[j].
class ThresholdGrid {
  constructor(pair) {
    this.pair = pair;
    this.kinds = pair.kinds; // "correct", "wrong", then the kinds of unknown inputs
    this.unknownKinds = pair.kinds.slice(2);
    this.tauId = new Float64Array(decodeBase64(pair.tau_id));
    this.tauOod = new Float64Array(decodeBase64(pair.tau_ood));
    this.rows = this.tauId.length;
    this.columns = this.tauOod.length;
    const counts = new COUNT_TYPES[pair.bytes](decodeBase64(pair.counts));
    this.accepted = pair.kinds.map((_, kind) => this.sumFromAbove(counts, kind * this.rows * this.columns));
    const [correct, wrong, ...unknown] = this.accepted.map((table) => table[0]); // the lowest thresholds accept all
    this.total = { correct, wrong, unknown, known: correct + wrong, allUnknown: sum(unknown) };
  }

  // The page stores the inputs in each cell. A threshold accepts its own cell and all above it, so accepted inputs are
  // sums over the cells up and to the right. A further row and column of zeros spare the edges a special case.
  sumFromAbove(counts, offset) {
    const stride = this.columns + 1;
    const sums = new Float64Array((this.rows + 1) * stride);
    for (let row = this.rows - 1; row >= 0; row--) {
      for (let column = this.columns - 1; column >= 0; column--) {
        const place = row * stride + column;
        const inCell = Number(counts[offset + row * this.columns + column]);
        sums[place] = inCell + sums[place + stride] + sums[place + 1] - sums[place + stride + 1];
      }
    }
    return sums;
  }

  // Weight of one unknown input, so that unknown inputs are the expected share of all; null keeps the share of the data.
  weightOfUnknown(expectedShare) {
    if (expectedShare === null || !this.total.allUnknown) return 1;
    return (expectedShare / (1 - expectedShare)) * (this.total.known / this.total.allUnknown);
  }

  // Evaluate the gate with the thresholds of this row and column. Counts are of the data; rates and cost are weighted.
  evaluate(row, column, expected) {
    const place = row * (this.columns + 1) + column;
    const [correct, wrong, ...unknown] = this.accepted.map((table) => table[place]);
    const total = this.total;
    const known = correct + wrong;
    const acceptedUnknown = sum(unknown);
    const rejectedUnknown = total.allUnknown - acceptedUnknown;
    const weight = this.weightOfUnknown(expected.share);
    const accepted = known + weight * acceptedUnknown;
    const cost =
      expected.costs.wrong * wrong +
      expected.costs.unknown * weight * acceptedUnknown +
      expected.costs.reject * (total.known - known + weight * rejectedUnknown);
    return {
      true_accept: correct,
      false_accept_mistakes: wrong,
      false_accept_ood: acceptedUnknown,
      false_reject: total.correct - correct,
      unknown,
      precision: accepted ? correct / accepted : 0,
      recall: correct / total.known,
      f1: (2 * correct) / (accepted + total.known),
      risk: accepted ? 1 - correct / accepted : 0,
      coverage: known / total.known,
      cost: cost / (total.known + weight * total.allUnknown),
    };
  }

  // Find the row and column with the largest value of a function of the evaluation.
  findBest(valueOf, expected) {
    let largest = -Infinity;
    let best = [0, 0];
    for (let row = 0; row < this.rows; row++) {
      for (let column = 0; column < this.columns; column++) {
        const value = valueOf(this.evaluate(row, column, expected));
        if (value > largest) {
          largest = value;
          best = [row, column];
        }
      }
    }
    return best;
  }
}
