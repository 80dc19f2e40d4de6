import { NamespacePattern } from './namespaces.js';

describe('patterns of namespaces', () => {
  it.each([
    ['@irc_.*', '@irc_bob:example.org', true],
    ['@irc_.*', '@ircbob:example.org', false],
    ['@irc_.*', 'x@irc_bob:example.org', false],
    // The end is open.
    ['@irc_', '@irc_bob:example.org', true],
    ['@irc_bob$', '@irc_bob:example.org', false],
    ['^@irc_', '@irc_bob:example.org', true],
    ['@irc_.*:example\\.org', '@irc_bob:example.org', true],
    ['@irc_.*:example\\.org', '@irc_bob:exampleXorg', false],
    ['@a|@b', '@bob:example.org', true],
    ['@a|@b', '@carol:example.org', false],
    ['@ab?c', '@ac:example.org', true],
    ['@ab*', '@a:example.org', true],
    ['@ab{2}', '@ab:example.org', false],
    ['@ab{2}', '@abb:example.org', true],
    ['@\\w+_bridge', '@my_bridge:example.org', true],
    ['#\\_x\\-.*', '#_x-room:example.org', true],
    ['.*', 'anything', true],
    ['', 'anything', true],
    ['(?i)@IRC_.*', '@irc_bob:example.org', true],
    ['@b\\x6fb', '@bob:example.org', true],
  ])('%s on %s: %s', (pattern, name, matches) => {
    expect(new NamespacePattern(pattern).matches(name)).toBe(matches);
  });

  it('takes as long as the name is, whatever the pattern', () => {
    const hostile = new NamespacePattern('@(a+)+b$');
    const startedMs = performance.now();
    expect(hostile.matches(`@${'a'.repeat(250)}!`)).toBe(false);
    expect(performance.now() - startedMs).toBeLessThan(10_000);
  });

  it('says what is wrong with a pattern', () => {
    expect(() => new NamespacePattern('@(irc_')).toThrow(/missing closing \)/);
    expect(() => new NamespacePattern('@(?!bot).*')).toThrow(/look-ahead/);
    expect(() => new NamespacePattern('a'.repeat(10_001))).toThrow(/longer than/);
  });
});
