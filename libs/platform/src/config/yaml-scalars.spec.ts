import { parseSettings } from './source.js';

const read = (text: string): unknown => parseSettings('homeserver.yaml', text).values;
const valueOf = (scalar: string): unknown => (read(`a: ${scalar}`) as { a: unknown }).a;

describe('plain scalars of settings files', () => {
  it.each(['yes', 'Yes', 'YES', 'true', 'True', 'TRUE', 'on', 'On', 'ON'])('%s is true', (text) => {
    expect(valueOf(text)).toBe(true);
  });
  it.each(['no', 'No', 'NO', 'false', 'False', 'FALSE', 'off', 'Off', 'OFF'])('%s is false', (text) => {
    expect(valueOf(text)).toBe(false);
  });
  it.each([
    ...['y', 'Y', 'n', 'N', 'yEs', 'tRUE', 'oN', '"yes"', "'no'"],
    ...[
      '1e3',
      '1E5',
      '1.5e3',
      '.5e3',
      '08',
      '0o10',
      '1:60',
      '1:2:99',
      '+.5',
      '-.5',
      '.',
      '+',
      '0x',
      '0b2',
      '1,5',
      '.nAn',
      'inf',
    ],
    ...['2024-01-02', '2024-01-02T03:04:05Z'],
  ])('%s is text', (text) => {
    expect(valueOf(text)).toBe(text.replaceAll(/^["']|["']$/g, ''));
  });
  it.each([
    ['0', 0],
    ['-0', 0],
    ['12', 12],
    ['+12', 12],
    ['-12', -12],
    ['1_000', 1000],
    ['010', 8],
    ['-010', -8],
    ['0x1F', 31],
    ['-0x1f', -31],
    ['0b101', 5],
    ['1:30', 90],
    ['-1:30', -90],
    ['1:30:00', 5400],
    ['1.', 1],
    ['1.5', 1.5],
    ['08.5', 8.5],
    ['.5', 0.5],
    ['1.0e+3', 1000],
    ['1.5E-1', 0.15],
    ['1_0.5', 10.5],
    ['1:30.5', 90.5],
    ['.inf', Infinity],
    ['-.INF', -Infinity],
    ['.nan', NaN],
  ])('%s is %d', (text, number) => {
    expect(valueOf(text)).toEqual(number === 0 ? expect.closeTo(0) : number);
  });
  it.each(['', '~', 'null', 'Null', 'NULL'])('"%s" is nothing', (text) => {
    expect(valueOf(text)).toBeNull();
  });

  it('mean the same as keys and in lists', () => {
    expect(read('axes: {n: 0, y: 1}\nlist: [y, n, yes]\n? no\n: 1')).toEqual({
      axes: { n: 0, y: 1 },
      list: ['y', 'n', true],
      false: 1,
    });
  });

  it('mean what a tag in front of them says', () => {
    expect(read('a: !!str yes\nb: !!str 12\nc: !!int "12"')).toEqual({ a: 'yes', b: '12', c: 12 });
  });
});
