import { checkClientAddress, displayedAddress, isTrustedClient } from './client-addresses.js';

it.each(['https://app.example/#/login', 'http://localhost:1234', 'element://vector/webapp', 'im.app:login', 'app:'])(
  'a login can lead to %s',
  (url) => {
    expect(() => checkClientAddress(url)).not.toThrow();
  },
);

it.each([
  'javascript:alert(1)',
  ' JavaScript:alert(1)',
  'java\nscript:alert(1)',
  'data:text/html,x',
  'vbscript:x',
  'blob:https://x/y',
  'file:///etc/passwd',
  'about:blank',
  'view-source:https://x',
  '//app.example/',
  '/relative',
  '',
  `https://app.example/${'x'.repeat(2_000)}`,
  'https://app.example/\ud800',
])('no login leads to %j', (url) => {
  expect(() => checkClientAddress(url)).toThrow('No login can lead to this address');
});

it.each<[string, string, boolean]>([
  ['https://app.example/x', 'https://app.example/', true],
  ['https://app.example/x', 'https://app.example', true],
  ['https://app.example:8443/x', 'https://app.example', false],
  ['https://app.example.evil.example/', 'https://app.example', false],
  ['https://app.example@evil.example/', 'https://app.example', false],
  ['https://app.example/other', 'https://app.example/app', false],
  ['http://app.example/', 'https://app.example/', false],
  ['element://vector/webapp', 'element://', true],
  ['https://APP.example/', 'https://app.example/', true],
  ['https://app.example/web/../other', 'https://app.example/web/', false],
  ['https://app.example/web/%2e%2e/other', 'https://app.example/web/', false],
  ['https://app.example:443/web/x', 'https://app.example/web/', true],
])('%s with %s in the whitelist: %s', (url, beginning, trusted) => {
  expect(isTrustedClient(url, ['https://nobody.example/', beginning])).toBe(trusted);
});

it('shows where an address leads, without what it carries', () => {
  expect(displayedAddress('https://app.example/x?secret#more')).toBe('https://app.example/x');
});
