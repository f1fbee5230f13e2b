// Numbers as people read them.
const whole = new Intl.NumberFormat("en-US");
const percents = new Intl.NumberFormat("en-US", { style: "percent", maximumFractionDigits: 1 });

export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));
export const percent = (value) => (value === null || value === undefined ? "–" : percents.format(value));

// Cents where there are some; below that, what there is.
export function dollars(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  const sign = value < 0 ? "−$" : "$";
  if (size === 0) return "$0";
  if (size >= 0.1) return sign + size.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  const digits = Math.min(9, 2 - Math.floor(Math.log10(size)));
  return sign + size.toFixed(digits).replace(/0+$/, "").replace(/\.$/, "");
}

export const price = (value) => `$${value.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 6 })}`;
export const pricesOf = (model) => `${price(model.input_price_per_mtok)} in, ${price(model.output_price_per_mtok)} out a million tokens`;
export const milliseconds = (value) => (value < 10 ? `${value.toFixed(1)} ms` : `${Math.round(value)} ms`);
export const seconds = (ms) => `${(ms / 1000).toFixed(ms < 995 ? 2 : 1)} s`;
export const bytes = (value) => (value < 2 ** 20 ? `${Math.ceil(value / 1024)} KB` : `${(value / 2 ** 20).toFixed(1)} MB`);
