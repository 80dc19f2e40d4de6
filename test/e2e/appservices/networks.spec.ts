import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';
import { validatedFetch } from '../../support/openapi.js';
import { ok, outcome } from '../rooms/rooms-client.js';
import { acting, databases, FakeService, RegistrationFiles, type ServiceRequest } from './support.js';

const protocol = (network: string) => ({
  user_fields: ['nick'],
  location_fields: ['channel'],
  icon: 'mxc://rookery.test/icon',
  field_types: { nick: { regexp: '.*', placeholder: 'nick' }, channel: { regexp: '#.*', placeholder: '#chan' } },
  instances: [{ desc: network, network_id: network, fields: { network } }],
});

describe.each(databases)('networks of application services (%s)', (database) => {
  const files = new RegistrationFiles();
  let one: FakeService;
  let two: FakeService;
  let broken: FakeService;
  let homeserver: TestHomeserver;
  let alice: TestUser;

  const answers =
    (network: string) =>
    ({ method, path, query }: ServiceRequest) => {
      if (method !== 'GET' || !path.startsWith('/_matrix/app/v1/thirdparty/')) return undefined;
      const rest = path.slice('/_matrix/app/v1/thirdparty'.length);
      if (rest === '/protocol/irc') return { status: 200, body: protocol(network) };
      const user = { userid: `@one_bob:rookery.test`, protocol: 'irc', fields: { nick: query.get('nick') ?? 'bob' } };
      const location = { alias: `#one_chan:rookery.test`, protocol: 'irc', fields: { channel: '#chan' } };
      if (rest === '/user/irc' || rest === '/user') return { status: 200, body: [user, 'rubbish', { userid: 5 }] };
      if (rest === '/location/irc' || rest === '/location') return { status: 200, body: [location] };
      return undefined;
    };

  beforeAll(async () => {
    [one, two, broken] = await Promise.all([FakeService.start(), FakeService.start(), FakeService.start()]);
    one.onRequest = answers('freenode');
    two.onRequest = answers('oftc');
    broken.onRequest = () => ({ status: 200, body: 'no JSON at all' });
    homeserver = await createTestHomeserver({
      database,
      fetch: validatedFetch,
      settings: {
        app_service_config_files: [
          files.write('one', {
            url: one.url,
            protocols: ['irc'],
            namespaces: {
              users: [{ regex: '@one_.*', exclusive: true }],
              aliases: [{ regex: '#one_.*', exclusive: true }],
            },
          }),
          files.write('two', { url: two.url, protocols: ['irc'] }),
          files.write('broken', { url: broken.url, protocols: ['irc', 'xmpp'] }),
          files.write('silent', { protocols: ['silent'] }),
        ],
      },
    });
    alice = await homeserver.registerUser('alice');
  });
  afterAll(async () => {
    await homeserver?.stop();
    await Promise.all([one?.down(), two?.down(), broken?.down()]);
    files.remove();
  });

  it('are listed with the instances of all services, and asked for once', async () => {
    const protocols = await ok<Record<string, { instances: object[] }>>(alice, 'GET', '/thirdparty/protocols');
    expect(Object.keys(protocols)).toEqual(['irc']);
    expect(protocols['irc']?.instances).toEqual([
      { desc: 'freenode', network_id: 'freenode', instance_id: 'one|freenode', fields: { network: 'freenode' } },
      { desc: 'oftc', network_id: 'oftc', instance_id: 'two|oftc', fields: { network: 'oftc' } },
    ]);
    expect(await ok(alice, 'GET', '/thirdparty/protocol/irc')).toEqual(protocols['irc']);
    expect(one.requests).toHaveLength(1);
    expect(outcome(await alice.request('GET', '/thirdparty/protocol/xmpp'))).toBe('404 M_NOT_FOUND');
    expect(outcome(await alice.request('GET', '/thirdparty/protocol/none'))).toBe('404 M_NOT_FOUND');
    expect(outcome(await homeserver.request('GET', '/thirdparty/protocols'))).toBe('401 M_MISSING_TOKEN');
  });

  it('are searched for users and rooms, without handing on the token of who asks', async () => {
    const users = await homeserver.request('GET', `/thirdparty/user/irc?nick=bob&access_token=${alice.accessToken}`);
    expect(users.body).toEqual([
      { userid: '@one_bob:rookery.test', protocol: 'irc', fields: { nick: 'bob' } },
      { userid: '@one_bob:rookery.test', protocol: 'irc', fields: { nick: 'bob' } },
    ]);
    const asked = one.requests.at(-1);
    expect([asked?.path, [...(asked?.query ?? [])]]).toEqual([
      '/_matrix/app/v1/thirdparty/user/irc',
      [['nick', 'bob']],
    ]);
    expect(await ok(alice, 'GET', '/thirdparty/location/irc?channel=%23chan')).toHaveLength(2);
    expect(outcome(await alice.request('GET', '/thirdparty/user/none'))).toBe('404 M_NOT_FOUND');
  });

  it('tell what a user and an alias of theirs is there', async () => {
    const user = encodeURIComponent('@one_bob:rookery.test');
    expect(await ok(alice, 'GET', `/thirdparty/user?userid=${user}`)).toEqual([
      { userid: '@one_bob:rookery.test', protocol: 'irc', fields: { nick: 'bob' } },
    ]);
    expect(one.requests.at(-1)?.query.get('userid')).toBe('@one_bob:rookery.test');
    const alias = encodeURIComponent('#one_chan:rookery.test');
    expect(await ok(alice, 'GET', `/thirdparty/location?alias=${alias}`)).toHaveLength(1);
    expect(await ok(alice, 'GET', `/thirdparty/location?alias=${encodeURIComponent('#x:rookery.test')}`)).toEqual([]);
    expect(outcome(await alice.request('GET', '/thirdparty/user?userid=rubbish'))).toBe('400 M_INVALID_PARAM');
    expect(outcome(await alice.request('GET', '/thirdparty/user'))).toBe('400 M_MISSING_PARAM');
  });

  it('have rooms of their own in the directory, which whoever asks for all networks sees beside the others', async () => {
    const bot = acting(homeserver, 'one');
    const options = { preset: 'public_chat', name: 'Bridged' };
    const { room_id: roomId } = await ok<{ room_id: string }>(bot, 'POST', '/createRoom', options);
    await ok(bot, 'PUT', `/directory/list/appservice/freenode/${roomId}`, { visibility: 'public' });
    const found = async (body: object): Promise<string[]> => {
      const { chunk } = await ok<{ chunk: { room_id: string }[] }>(alice, 'POST', '/publicRooms', body);
      return chunk.map((room) => room.room_id);
    };
    expect(await found({})).toEqual([]);
    expect(await found({ third_party_instance_id: 'one|freenode' })).toEqual([roomId]);
    expect(await found({ include_all_networks: true })).toEqual([roomId]);
    expect(await found({ include_all_networks: false })).toEqual([]);
  });

  it('are pinged for their services', async () => {
    const ping = (id: string, user: TestUser) =>
      user.request('POST', `/_matrix/client/v1/appservice/${id}/ping`, { transaction_id: 'ping 1' });
    const bot = acting(homeserver, 'one');
    expect((await ping('one', bot)).body).toEqual({ duration_ms: expect.any(Number) });
    expect(one.requests.at(-1)).toMatchObject({
      ...{ method: 'POST', path: '/_matrix/app/v1/ping', authorization: 'Bearer hs-one' },
      body: { transaction_id: 'ping 1' },
    });
    expect(outcome(await ping('two', bot))).toBe('403 M_FORBIDDEN');
    expect(outcome(await ping('one', alice))).toBe('403 M_FORBIDDEN');
    expect(outcome(await ping('none', bot))).toBe('403 M_FORBIDDEN');
    expect(outcome(await ping('silent', acting(homeserver, 'silent')))).toBe('400 M_URL_NOT_SET');
    one.onRequest = () => ({ status: 401, body: { errcode: 'M_UNKNOWN_TOKEN' } });
    expect((await ping('one', bot)).body).toMatchObject({
      ...{ errcode: 'M_BAD_STATUS', status: 401, body: '{"errcode":"M_UNKNOWN_TOKEN"}' },
    });
    await one.down();
    expect(outcome(await ping('one', bot))).toBe('502 M_CONNECTION_FAILED');
    await one.listen();
  });
});
