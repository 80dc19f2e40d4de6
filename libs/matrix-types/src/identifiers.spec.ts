import {
  domainOf,
  fitsBytes,
  isValidEventId,
  isHistoricalLocalpart,
  isValidNewLocalpart,
  isValidRoomAlias,
  isValidRoomId,
  isValidServerName,
  isValidUserId,
  localpartOf,
  parseEventId,
  parseRoomAlias,
  parseRoomId,
  parseServerName,
  parseUserId,
} from './index.js';

describe('server names', () => {
  it.each([
    ['example.org', { host: 'example.org', kind: 'dns', port: undefined }],
    ['localhost', { host: 'localhost', kind: 'dns', port: undefined }],
    ['Example.ORG:8448', { host: 'Example.ORG', kind: 'dns', port: 8448 }],
    ['xn--bcher-kva.example', { host: 'xn--bcher-kva.example', kind: 'dns', port: undefined }],
    ['1.2.3.4', { host: '1.2.3.4', kind: 'ipv4', port: undefined }],
    ['1.2.3.4:80', { host: '1.2.3.4', kind: 'ipv4', port: 80 }],
    ['[::1]', { host: '::1', kind: 'ipv6', port: undefined }],
    ['[2001:db8::ff00:42:8329]:65535', { host: '2001:db8::ff00:42:8329', kind: 'ipv6', port: 65535 }],
    ['[::ffff:1.2.3.4]', { host: '::ffff:1.2.3.4', kind: 'ipv6', port: undefined }],
  ])('takes %s', (text, parts) => {
    expect(parseServerName(text)).toEqual(parts);
  });

  it.each([
    ['empty', ''],
    ['no host', ':80'],
    ['empty port', 'example.org:'],
    ['port beyond range', 'example.org:65536'],
    ['six digits of port', 'example.org:000080'],
    ['two ports', 'example.org:1:2'],
    ['underscore', 'exa_mple.org'],
    ['space', 'example .org'],
    ['line end', 'example.org\n'],
    ['not ASCII', 'bücher.example'],
    ['path', 'example.org/a'],
    ['user', 'a@example.org'],
    ['IPv4 beyond range', '1.2.3.256'],
    ['IPv6 without brackets', '2001:db8::1'],
    ['IPv6 unclosed', '[::1'],
    ['IPv6 of other characters', '[::g]'],
    ['IPv6 without colon', '[abcd]'],
    ['IPv6 too short', '[:]'],
    ['too long', `${'a'.repeat(227)}.org`],
  ])('refuses: %s', (_, text) => {
    expect(isValidServerName(text)).toBe(false);
  });
});

describe('user ids', () => {
  it.each([
    ['@alice:example.org', 'alice', 'example.org'],
    ['@alice:example.org:8448', 'alice', 'example.org:8448'],
    ['@a:[::1]:80', 'a', '[::1]:80'],
    ['@:example.org', '', 'example.org'],
    ['@Al!ce#:example.org', 'Al!ce#', 'example.org'],
    ['@ålice 🙂:example.org', 'ålice 🙂', 'example.org'],
  ])('takes %s', (id, localpart, serverName) => {
    expect(parseUserId(id)).toEqual({ id, localpart, serverName });
    expect(domainOf(id)).toBe(serverName);
    expect(localpartOf(id)).toBe(localpart);
  });

  it.each([
    '',
    '@',
    'alice:example.org',
    '#alice:example.org',
    '@alice',
    '@alice:',
    '@alice:exa mple.org',
    '@a\0:b',
    '@\ud800:b',
  ])('refuses %j', (id) => {
    expect(isValidUserId(id)).toBe(false);
  });

  it('counts bytes, not characters', () => {
    const domain = ':example.org';
    expect(isValidUserId(`@${'a'.repeat(254 - domain.length)}${domain}`)).toBe(true);
    expect(isValidUserId(`@${'a'.repeat(255 - domain.length)}${domain}`)).toBe(false);
    expect(isValidUserId(`@${'ä'.repeat((254 - domain.length) / 2)}${domain}`)).toBe(true);
    expect(isValidUserId(`@${'ä'.repeat((256 - domain.length) / 2)}${domain}`)).toBe(false);
  });

  it('is strict with new localparts', () => {
    expect(isValidNewLocalpart('a1._=-/+')).toBe(true);
    for (const localpart of ['', 'Alice', 'a b', 'ä', 'a:b', 'a!', 'a\n'])
      expect(isValidNewLocalpart(localpart)).toBe(false);
  });

  it('knows localparts of the past', () => {
    for (const localpart of ['a1._=-/+', 'Alice', 'a!', '[m]^|`~'])
      expect([localpart, isHistoricalLocalpart(localpart)]).toEqual([localpart, true]);
    for (const localpart of ['', 'a b', 'ä', 'a:b', 'a\n', 'a\x7f'])
      expect([localpart, isHistoricalLocalpart(localpart)]).toEqual([localpart, false]);
  });
});

describe('room and event ids', () => {
  const hash = 'Nhcu5BS-UMnFX7hBVfVSoXiD7OgH6iRT-xyIuqDnpYQ';

  it('takes both forms', () => {
    expect(parseRoomId('!abc:example.org')).toEqual({
      id: '!abc:example.org',
      opaque: 'abc',
      serverName: 'example.org',
    });
    expect(parseRoomId(`!${hash}`)).toEqual({ id: `!${hash}`, opaque: hash, serverName: undefined });
    expect(parseEventId('$abc:example.org')).toEqual({
      id: '$abc:example.org',
      opaque: 'abc',
      serverName: 'example.org',
    });
    expect(parseEventId(`$${hash}`)).toEqual({ id: `$${hash}`, opaque: hash, serverName: undefined });
    expect(parseEventId('$acR1l0raoZnm60CBwAVgqbZqoO/mYU81xysh1u7XcJk')).toBeDefined();
    expect(domainOf(`!${hash}`)).toBe('');
    expect(localpartOf(`!${hash}`)).toBe(hash);
  });

  it.each(['', '!', '!:example.org', '!abc:', '!abc:exa mple', '$abc:example.org', '!a\0b', `!${'a'.repeat(255)}`])(
    'refuses the room id %j',
    (id) => {
      expect(isValidRoomId(id)).toBe(false);
    },
  );

  it.each(['', '$', '$:example.org', '!abc:example.org', `$${'a'.repeat(255)}`])('refuses the event id %j', (id) => {
    expect(isValidEventId(id)).toBe(false);
  });
});

describe('room aliases', () => {
  it('has a name and a domain', () => {
    expect(parseRoomAlias('#café au lait:example.org')).toEqual({
      id: '#café au lait:example.org',
      localpart: 'café au lait',
      serverName: 'example.org',
    });
    for (const alias of ['', '#', '#a', '#:example.org', '#a:', '@a:example.org', '#a\0:example.org']) {
      expect(isValidRoomAlias(alias)).toBe(false);
    }
  });
});

describe('fitsBytes', () => {
  it('is exact at the limit', () => {
    expect(fitsBytes('€'.repeat(85), 255)).toBe(true);
    expect(fitsBytes(`${'€'.repeat(85)}a`, 255)).toBe(false);
    expect(fitsBytes('a'.repeat(255), 255)).toBe(true);
    expect(fitsBytes('🙂'.repeat(64), 255)).toBe(false);
  });
});
