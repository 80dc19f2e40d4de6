import { nodeProblem } from './node-version.js';

describe('an older Node.js', () => {
  it.each(['20.20.2', '22.18.0', '18.0.0'])('%s is refused with one line', (version) => {
    expect(nodeProblem(version)).toMatch(
      new RegExp(`^Rookery needs Node\\.js \\d+\\.\\d+ or newer, and this is ${version}: install a newer one\\. .*$`),
    );
  });

  it.each(['22.19.0', '23.0.0', process.versions.node])('%s is new enough', (version) => {
    expect(nodeProblem(version)).toBeUndefined();
  });
});
