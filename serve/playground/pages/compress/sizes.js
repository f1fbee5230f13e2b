// The sizes that the slider has, and what an answer says of each.
const RATIOS = 40;
const PROMISES = [0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99];

// What a model takes, by the kind of size.
export function gridOf(model) {
  const ratios = Array.from({ length: RATIOS }, (_, at) => Number(((at + 1) / RATIOS).toFixed(3)));
  return {
    target_ratio: ratios.filter((ratio) => ratio >= model.ratio.min && ratio <= model.ratio.max),
    keep: model.offers_keep ? PROMISES : [],
  };
}

export const sizesToAsk = (grid, kind) => grid[kind].map((value) => ({ [kind]: value }));

export function nearest(values, wanted) {
  return values.reduce((best, value, at) => (Math.abs(value - wanted) < Math.abs(values[best] - wanted) ? at : best), 0);
}

// What an answer tells: of the size asked for, and of every other.
export function sizesOf(answer) {
  const own = { kept: answer.kept.map(({ start, end }) => [start, end]), receipt: answer.receipt };
  return [...(answer.sizes ?? []), own];
}

export function sizeAt(sizes, kind, value) {
  return sizes.find(({ receipt }) => receipt[kind] !== null && Math.abs(receipt[kind] - value) < 1e-9);
}
