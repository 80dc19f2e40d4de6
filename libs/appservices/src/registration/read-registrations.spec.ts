import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describeProblem } from '@rookery/platform';
import { readRegistrations } from './read-registrations.js';

describe('registration files', () => {
  const folder = mkdtempSync(join(tmpdir(), 'rookery-registrations-'));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  const file = (name: string, text: string): string => {
    const path = join(folder, name);
    writeFileSync(path, text);
    return path;
  };
  const read = (...files: string[]) => readRegistrations(files, 'example.org');
  const problemsOf = (text: string): string[] =>
    read(file('one.yaml', text)).problems.map((problem) => describeProblem(problem).replace(`${folder}/`, ''));

  const proxy = (prefix: string | undefined, url: string | undefined): string =>
    [
      ...(prefix === undefined ? [] : [`io.element.msc4512.proxy_prefix: ${prefix}\n`]),
      ...(url === undefined ? [] : [`io.element.msc4512.proxy_url: ${url}\n`]),
    ].join('');

  const irc = `id: irc
url: http://localhost:9000/
as_token: as-secret
hs_token: hs-secret
sender_localpart: ircbot
rate_limited: false
protocols: [irc]
namespaces:
  users:
    - regex: "@irc_.*"
      exclusive: true
  aliases:
    - regex: "#irc_.*:example\\\\.org"
      exclusive: false
  rooms: []
receive_ephemeral: true
`;

  it("a registration of the field's form is read with all of its fields", () => {
    const { registrations, problems } = read(file('irc.yaml', irc));
    expect(problems).toEqual([]);
    const [one] = registrations;
    expect(one).toMatchObject({ id: 'irc', senderUserId: '@ircbot:example.org', rateLimited: false });
    expect(one?.fields).toMatchObject({
      ...{ url: 'http://localhost:9000', asToken: 'as-secret', hsToken: 'hs-secret', protocols: ['irc'] },
      ...{ ephemeral: { stable: true, unstable: false }, extensions: false, sources: undefined },
    });
    expect(one?.covers('@irc_bob:example.org')).toBe(true);
    expect(one?.owns('@irc_bob:example.org')).toBe(true);
    expect(one?.owns('@ircbot:example.org')).toBe(true);
    expect(one?.coversAlias('#irc_x:example.org')).toBe(true);
    expect(one?.ownsAlias('#irc_x:example.org')).toBe(false);
  });

  it('reach users of this server alone', () => {
    const [one] = read(file('irc.yaml', irc)).registrations;
    expect(one?.covers('@irc_bob:else.org')).toBe(false);
    expect(one?.covers('@irc_bob:not-example.org')).toBe(false);
    expect(one?.covers('@irc_bob:x:example.org')).toBe(false);
    expect(one?.covers('@irc_bob')).toBe(false);
  });

  it('may do without traffic, but must say so', () => {
    const silent = irc.replace('url: http://localhost:9000/', 'url: null');
    expect(read(file('silent.yaml', silent)).registrations[0]?.fields.url).toBeUndefined();
    expect(problemsOf(irc.replace('url: http://localhost:9000/\n', ''))).toEqual([
      expect.stringMatching(/^one\.yaml: url: is missing: .*or null/),
    ]);
  });

  it('know the unstable names of what they ask for', () => {
    const [one] = read(
      file(
        'unstable.yaml',
        irc.replace(
          'receive_ephemeral: true',
          `de.sorunome.msc2409.push_ephemeral: true
org.matrix.msc3202: true
io.element.msc4190: true
ip_range_whitelist: [127.0.0.1, "10.0.0.0/8", "fd00::/8"]`,
        ),
      ),
    ).registrations;
    expect(one?.fields).toMatchObject({ ephemeral: { stable: false, unstable: true }, extensions: true });
    for (const [ip, accepted] of [
      ['127.0.0.1', true],
      ['10.2.3.4', true],
      ['fd00::1', true],
      ['192.0.2.1', false],
      ['rubbish', false],
    ] as const)
      expect([ip, one?.accepts(ip)]).toEqual([ip, accepted]);
  });

  it.each<[string, (text: string) => string, string]>([
    [
      'no id',
      (text) => text.replace('id: irc\n', ''),
      'one.yaml: id: is missing: write a name of your choice that stays the same',
    ],
    [
      'no as_token',
      (text) => text.replace('as_token: as-secret\n', ''),
      'one.yaml: as_token: is missing: write a long random text, the same as in the settings of the application service',
    ],
    [
      'an empty hs_token',
      (text) => text.replace('hs-secret', '""'),
      'one.yaml:4: hs_token: is missing: write a long random text, the same as in the settings of the application service',
    ],
    [
      'a number for a token',
      (text) => text.replace('hs-secret', '12345'),
      'one.yaml:4: hs_token: expected text: put it in quotes',
    ],
    [
      'a token with a space',
      (text) => text.replace('hs-secret', '"hs secret"'),
      'one.yaml:4: hs_token: expected ASCII characters without spaces',
    ],
    [
      'no sender',
      (text) => text.replace('sender_localpart: ircbot\n', ''),
      'one.yaml: sender_localpart: is missing: write the part of a user id between @ and the colon',
    ],
    [
      'a whole user id for the sender',
      (text) => text.replace('ircbot', '"@ircbot:example.org"'),
      'one.yaml:5: sender_localpart: write ircbot alone, without @ and server name',
    ],
    [
      "another server's sender",
      (text) => text.replace('ircbot', '"@ircbot:else.org"'),
      'one.yaml:5: sender_localpart: the user must be one of this server, example.org: write ircbot alone',
    ],
    [
      'a sender with strange characters',
      (text) => text.replace('ircbot', '"irc bot"'),
      'one.yaml:5: sender_localpart: expected letters, digits and . _ = / + - alone',
    ],
    [
      'no namespaces',
      (text) => text.slice(0, text.indexOf('namespaces')),
      'one.yaml: namespaces: is missing: write users, aliases and rooms, each a list that may be empty',
    ],
    [
      'an unknown kind of namespace',
      (text) => text.replace('  rooms: []', '  room: []'),
      'one.yaml:15: namespaces.room: not known: there are users, aliases, rooms',
    ],
    [
      'a namespace that is not a list',
      (text) => text.replace('  rooms: []', '  rooms: "!x"'),
      'one.yaml:15: namespaces.rooms: expected a list',
    ],
    [
      'a bad pattern',
      (text) => text.replace('@irc_.*', '@irc_(.*'),
      'one.yaml:10: namespaces.users[0].regex: not a regular expression: missing closing ): `@irc_(.*`',
    ],
    [
      'no exclusive',
      (text) => text.replace('      exclusive: true\n', ''),
      'one.yaml:10: namespaces.users[0].exclusive: is missing: write true or false',
    ],
    [
      'no regex',
      (text) => text.replace('regex: "@irc_.*"', 'regexp: "@irc_.*"'),
      'one.yaml:10: namespaces.users[0].regex: is missing: write a regular expression in quotes',
    ],
    [
      'a url that is none',
      (text) => text.replace('http://localhost:9000/', 'localhost:9000'),
      'one.yaml:2: url: expected an address such as http://localhost:9000, or null',
    ],
    [
      'a flag that is none',
      (text) => text.replace('rate_limited: false', 'rate_limited: maybe'),
      'one.yaml:6: rate_limited: expected true or false',
    ],
    [
      'protocols that are none',
      (text) => text.replace('[irc]', '{a: b}'),
      'one.yaml:7: protocols: expected a list of names',
    ],
    [
      'a range that is none',
      (text) => `${text}ip_range_whitelist: [10.0.0.0/8, here]\n`,
      'one.yaml:17: ip_range_whitelist[1]: expected an address or a range such as 10.0.0.0/8',
    ],
    [
      'a prefix without an address',
      (text) => `${text}${proxy('foo', undefined)}`,
      'one.yaml:17: io.element.msc4512.proxy_prefix: needs io.element.msc4512.proxy_url: where these paths go',
    ],
    [
      'an address without a prefix',
      (text) => `${text}${proxy(undefined, 'http://localhost:1')}`,
      'one.yaml:17: io.element.msc4512.proxy_url: needs io.element.msc4512.proxy_prefix: the paths that go there',
    ],
    ...['/foo', 'foo/', 'foo//bar', '""', '..', 'foo/./bar', ':foo', 'foo*', 'f%6fo', '"foo bar"', '[foo]', '7'].map(
      (prefix): [string, (text: string) => string, string] => [
        `the prefix ${prefix}`,
        (text) => `${text}${proxy(prefix, 'http://localhost:1')}`,
        'one.yaml:17: io.element.msc4512.proxy_prefix: expected segments of a path such as foo/bar, without slashes at its ends, ' +
          'of letters, digits and . _ ~ - alone',
      ],
    ),
    ...['localhost:1', 'http://localhost/?a=b', 'http://localhost/#a', '7'].map(
      (url): [string, (text: string) => string, string] => [
        `proxied requests to ${url}`,
        (text) => `${text}${proxy('foo', url)}`,
        'one.yaml:18: io.element.msc4512.proxy_url: expected an address such as http://localhost:9000',
      ],
    ),
    ['no YAML', () => 'id: "irc', 'one.yaml:1: not valid YAML: Missing closing "quote'],
    ['a list', () => '- id: irc', 'one.yaml:1: expected settings, one `name: value` per line'],
  ])('with %s are refused, with what to write instead', (_what, change, problem) => {
    const changed = change(irc);
    expect(changed).not.toBe(irc);
    expect(problemsOf(changed)).toContain(problem);
    expect(read(file('one.yaml', changed)).registrations).toEqual([]);
  });

  it('that are not there are refused', () => {
    const [problem] = read(join(folder, 'none.yaml')).problems;
    expect(problem).toMatchObject({ level: 'error', message: 'cannot read: there is no such file or folder' });
  });

  it('need ids and tokens of their own', () => {
    const first = file('first.yaml', irc);
    const second = file('second.yaml', irc);
    expect(read(first, second).problems.map((problem) => describeProblem(problem))).toEqual([
      `${second}:1: id: the same as in ${first}: each application service needs an id of its own`,
      `${second}:3: as_token: the same as in ${first}: each application service needs a token of its own`,
    ]);
    const third = file('third.yaml', irc.replace('id: irc', 'id: other').replace('as-secret', 'as-other'));
    expect(read(first, third).problems).toEqual([]);
  });

  it.each([
    ['foo', 'foo', true],
    ['foo', 'foo/bar', true],
    ['foo/bar/baz', 'foo/bar', true],
    ['foo', 'foobar', false],
    ['foo/bar', 'foo/baz', false],
    ['bar', 'foo/bar', false],
    ['foo', 'Foo', false],
  ])('that have %s and %s to themselves: overlap %s', (one, other, isOverlap) => {
    const first = file('first.yaml', irc + proxy(one, 'http://localhost:1/x/'));
    const changed = irc.replace('id: irc', 'id: other').replace('as-secret', 'as-other');
    const second = file('second.yaml', changed + proxy(other, 'http://localhost:2'));
    const { registrations, problems } = read(first, second);
    expect(problems.map((problem) => describeProblem(problem))).toEqual(
      isOverlap
        ? [
            `${second}:17: io.element.msc4512.proxy_prefix: overlaps with ${one} in ${first}: a path goes to one service alone`,
          ]
        : [],
    );
    expect(registrations[0]?.fields.proxied).toEqual({ prefix: one, url: 'http://localhost:1/x' });
  });
});
