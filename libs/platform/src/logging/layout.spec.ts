import { compileLayout, type LineLayout } from './layout.js';

const time = new Date(2026, 0, 5, 7, 8, 9, 45);
const line = (more: object = {}): string =>
  JSON.stringify({
    ...{ level: 'warn', time: time.toISOString(), logger: 'rooms.sending', requestId: 'GET-7', msg: 'Slow' },
    ...{ ms: 12, ...more },
  });
const written = (layout: LineLayout, json = line()): string => compileLayout(layout)(json);

it.each<[string, string]>([
  [
    '%(asctime)s - %(name)s - %(lineno)d - %(levelname)s - %(request)s - %(message)s',
    '2026-01-05 07:08:09,045 - rooms.sending - 0 - WARNING - GET-7 - Slow ms=12\n',
  ],
  ['[%(levelname)-9s|%(levelname)9s|%(levelno)04d|%(name).5s] 100%%', '[WARNING  |  WARNING|0030|rooms] 100%\n'],
  ['%(message)s', 'Slow ms=12\n'],
])('%s', (format, expected) => {
  expect(written({ format })).toBe(expected);
});

it('other styles, and other ways to write the time', () => {
  expect(written({ format: '{{{levelname:<8}}} {name:>15} {message}', style: '{' })).toBe(
    '{WARNING }   rooms.sending Slow ms=12\n',
  );
  expect(written({ format: '$levelname ${name} $$ $message', style: '$' })).toBe(
    'WARNING rooms.sending $ Slow ms=12\n',
  );
  expect(written({ format: '%(asctime)s', dateFormat: '%d %b %Y, %I:%M:%S %p %%' })).toBe(
    '05 Jan 2026, 07:08:09 AM %\n',
  );
});

it('keeps stacks behind the line, and what remote users write in it', () => {
  const text = written({ format: '%(message)s' }, line({ msg: 'a\nb', err: { stack: 'Error: x\n  at y' } }));
  expect(text).toBe('a\\nb ms=12\n    Error: x\n      at y\n');
  expect(written({ format: '%(request)s %(ip_address)s' }, JSON.stringify({ level: 'info', msg: 'x' }))).toBe('- -\n');
  expect(written({ format: '%(message)s' }, 'no json')).toBe('no json');
});

it('says what it does not know', () => {
  expect(() => compileLayout({ format: '%(colour)s' })).toThrow(/^colour is not known: there are message, asctime,/);
});
