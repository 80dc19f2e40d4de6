// Runs the suites in an order drawn from a seed (ROOKERY_TEST_ORDER): what passes only after another suite shows itself.
const { default: Sequencer } = require('@jest/test-sequencer');
const { createHash } = require('node:crypto');
const { relative } = require('node:path');

module.exports = class RandomOrder extends Sequencer {
  sort(tests) {
    const seed = process.env.ROOKERY_TEST_ORDER ?? '';
    const place = (test) =>
      createHash('sha256')
        .update(`${seed} ${relative(test.context.config.rootDir, test.path)}`)
        .digest('hex');
    return tests
      .map((test) => ({ test, place: place(test) }))
      .sort((a, b) => (a.place < b.place ? -1 : 1))
      .map(({ test }) => test);
  }
};
