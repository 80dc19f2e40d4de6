import { blockedUrls } from './url-rules.js';

const blocks = (entry: Record<string, string>, url: string): boolean => blockedUrls([entry])(new URL(url));

it.each([
  [{ username: '*' }, 'http://user@example.com/', true],
  [{ username: '*' }, 'http://example.com/', false],
  [{ netloc: 'google.com' }, 'http://google.com/x', true],
  [{ netloc: 'google.com' }, 'http://www.google.com/', false],
  [{ netloc: '*.google.com' }, 'http://www.google.com/', true],
  [{ netloc: '^[0-9]+\\.[0-9]+\\.[0-9]+\\.[0-9]+$' }, 'http://192.0.2.1/', true],
  [{ netloc: '^google' }, 'http://google.example/', true],
  [{ scheme: 'http', netloc: 'www.example.com', path: '/foo' }, 'http://www.example.com/foo', true],
  [{ scheme: 'http', netloc: 'www.example.com', path: '/foo' }, 'https://www.example.com/foo', false],
  [{ port: '8080' }, 'http://x:8080/', true],
  [{ port: '*' }, 'http://x/', false],
  [{ path: '/a?c' }, 'http://x/abc', true],
  [{ path: '/[ab]' }, 'http://x/b', true],
  [{ path: '/[!ab]' }, 'http://x/b', false],
  [{ path: '/a.c' }, 'http://x/abc', false],
  [{ path: '/a+(b)' }, 'http://x/a+(b)', true],
  [{ unknown: '*' }, 'http://x/', false],
  [{}, 'http://x/', false],
])('%j and %s: %s', (entry, url, expected) => {
  expect(blocks(entry as unknown as Record<string, string>, url)).toBe(expected);
});

it('one entry of several is enough', () => {
  const rule = blockedUrls([{ scheme: 'ftp' }, { hostname: 'x' }]);
  expect([rule(new URL('http://x/')), rule(new URL('http://y/'))]).toEqual([true, false]);
});

it('stars in a row take no longer than one', () => {
  const rule = blockedUrls([{ path: `${'*'.repeat(100)}x` }]);
  const startedMs = performance.now();
  expect(rule(new URL(`http://x/${'a'.repeat(5_000)}`))).toBe(false);
  expect(performance.now() - startedMs).toBeLessThan(5_000);
});
