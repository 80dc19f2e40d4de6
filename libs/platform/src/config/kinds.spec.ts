import { didYouMean, isIpRange, parseDurationMs, parseSizeBytes, toBlockList } from './kinds.js';

describe('durations', () => {
  it.each([
    [0, 0],
    [1500, 1500],
    ['1500', 1500],
    ['30s', 30_000],
    ['5m', 300_000],
    ['1h', 3_600_000],
    ['7d', 604_800_000],
    ['4w', 2_419_200_000],
    ['1y', 31_536_000_000],
  ])('%p is %p ms', (text, ms) => expect(parseDurationMs(text)).toBe(ms));
  it.each([-1, 1.5, '', 's', '5 minutes', '1.5h', '-1s', '5M', '99999999999999999y', null, true, {}])(
    '%p is none',
    (text) => expect(parseDurationMs(text)).toBeUndefined(),
  );
});

describe('sizes', () => {
  it.each([
    [10, 10],
    ['10', 10],
    ['1K', 1024],
    ['50M', 52_428_800],
    ['1g', 1_073_741_824],
    ['2T', 2_199_023_255_552],
    ['10KiB', 10_240],
    ['10MB', 10_485_760],
    ['7B', 7],
  ])('%p is %p bytes', (text, bytes) => expect(parseSizeBytes(text)).toBe(bytes));
  it.each([-1, 0.5, '', 'M', '1.5M', '10X', 'ten', null, [], '9999999T9'])('%p is none', (text) =>
    expect(parseSizeBytes(text)).toBeUndefined(),
  );
});

describe('address ranges', () => {
  it.each(['10.0.0.0/8', '::1', 'fe80::/10', '1.2.3.4', '0.0.0.0/0'])('%s is one', (range) =>
    expect(isIpRange(range)).toBe(true),
  );
  it.each(['10.0.0.0/33', 'fe80::/129', '10.0.0', 'example.org', '10.0.0.0/8/8', '10.0.0.0/', '10.0.0.0/x', ''])(
    '%s is none',
    (range) => expect(isIpRange(range)).toBe(false),
  );
  it('holds addresses and ranges of both families', () => {
    const list = toBlockList(['10.0.0.0/8', '::1', 'fc00::/7']);
    expect([
      list.check('10.1.2.3'),
      list.check('11.0.0.1'),
      list.check('::1', 'ipv6'),
      list.check('fd00::1', 'ipv6'),
    ]).toEqual([true, false, true, true]);
  });
});

describe('nearest name', () => {
  it('finds a slip, and nothing for something else', () => {
    expect(didYouMean('enable_serach', ['enable_search', 'enable_metrics'])).toBe('; did you mean enable_search?');
    expect(didYouMean('zebra', ['enable_search', 'modules'])).toBe('');
    expect(didYouMean('tl', ['tls'])).toBe('; did you mean tls?');
  });
});
