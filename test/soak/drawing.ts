import { measureKeys, measures, type Sample } from './samples.js';

const panel = { width: 520, height: 150, left: 64, top: 28, gapX: 40, gapY: 52 };
const colours: readonly string[] = ['#3567b0', '#c0632b', '#3f8f5c'];

const rounded = (value: number): string => (value >= 100 ? value.toFixed(0) : value.toFixed(value >= 10 ? 1 : 2));

/** One picture of everything measured: a panel for each measure, a line for each run. */
export function drawing(runs: ReadonlyMap<string, readonly Sample[]>): string {
  const columns = 2;
  const rows = Math.ceil(measureKeys.length / columns);
  const cell = { width: panel.left + panel.width + panel.gapX, height: panel.top + panel.height + panel.gapY };
  const width = columns * cell.width;
  const height = rows * cell.height + 40;
  const minutes = Math.max(1, ...[...runs.values()].flat().map((sample) => sample.minute));
  const parts: string[] = [];
  for (const [n, key] of measureKeys.entries()) {
    const { name, unit } = measures[key];
    const x = (n % columns) * cell.width + panel.left;
    const y = Math.floor(n / columns) * cell.height + panel.top;
    const most = Math.max(1e-9, ...[...runs.values()].flat().map((sample) => sample[key])) * 1.05;
    parts.push(`<text x="${x}" y="${y - 10}" class="title">${name}, ${unit}</text>`);
    parts.push(`<rect x="${x}" y="${y}" width="${panel.width}" height="${panel.height}" class="frame"/>`);
    for (const share of [0, 0.5, 1]) {
      const at = y + panel.height * (1 - share);
      parts.push(`<text x="${x - 6}" y="${at + 4}" class="label" text-anchor="end">${rounded(most * share)}</text>`);
    }
    for (const share of [0, 0.5, 1]) {
      const at = x + panel.width * share;
      parts.push(
        `<text x="${at}" y="${y + panel.height + 16}" class="label" text-anchor="middle">${rounded(minutes * share)} min</text>`,
      );
    }
    for (const [run, [, samples]] of [...runs].entries()) {
      const points = samples.map((sample) => {
        const px = x + (sample.minute / minutes) * panel.width;
        const py = y + panel.height - (sample[key] / most) * panel.height;
        return `${px.toFixed(1)},${py.toFixed(1)}`;
      });
      parts.push(
        `<polyline points="${points.join(' ')}" fill="none" stroke="${colours[run % colours.length]}" stroke-width="1.5"/>`,
      );
    }
  }
  for (const [run, [name]] of [...runs].entries()) {
    const x = panel.left + run * 160;
    parts.push(`<rect x="${x}" y="${height - 26}" width="14" height="4" fill="${colours[run % colours.length]}"/>`);
    parts.push(`<text x="${x + 20}" y="${height - 20}" class="title">${name}</text>`);
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}">
<style>text{font-family:sans-serif;fill:#333}.title{font-size:13px}.label{font-size:11px}.frame{fill:#fafafa;stroke:#ccc}</style>
<rect width="100%" height="100%" fill="#fff"/>
${parts.join('\n')}
</svg>
`;
}
