import type { JsonObject } from '@rookery/matrix-types';
import type { TestHomeserver, TestUser } from '@rookery/testing';
import { createRoom, databases } from '../rooms/rooms-client.js';
import { FederationWorld, type PlayedServer, send } from './federation-world.js';

/** One pixel. */
const png = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);

describe.each(databases)('what servers show each other (%s)', (database) => {
  let world: FederationWorld;
  let here: TestHomeserver;
  let there: TestHomeserver;
  let alice: TestUser;
  let zoe: TestUser;
  let other: PlayedServer;
  beforeAll(async () => {
    world = await FederationWorld.create();
    here = await world.homeserver('here.test', {
      database,
      settings: {
        allow_public_rooms_over_federation: true,
        room_list_publication_rules: [{ action: 'allow' }],
        max_upload_size: '100K',
      },
    });
    there = await world.homeserver('there.test', { database });
    alice = await here.registerUser('alice');
    zoe = await there.registerUser('zoe');
    other = await world.played('played.test');
  });
  afterAll(() => world.stop());

  const upload = async (server: TestHomeserver, user: TestUser, bytes: Buffer, name: string): Promise<string> => {
    const response = await fetch(`${server.baseUrl}/_matrix/media/v3/upload?filename=${encodeURIComponent(name)}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${user.accessToken}`, 'content-type': 'image/png' },
      body: new Uint8Array(bytes),
    });
    return ((await response.json()) as { content_uri: string }).content_uri.slice('mxc://'.length);
  };
  const download = (server: TestHomeserver, user: TestUser, media: string, kind = 'download'): Promise<Response> =>
    fetch(`${server.baseUrl}/_matrix/client/v1/media/${kind}/${media}`, {
      headers: { authorization: `Bearer ${user.accessToken}` },
    });

  it('are files, with their names', async () => {
    const media = await upload(there, zoe, png, 'ein Bild ☃.png');
    for (let i = 0; i < 2; i++) {
      const response = await download(here, alice, media);
      expect([response.status, response.headers.get('content-type')]).toEqual([200, 'image/png']);
      expect(response.headers.get('content-disposition')).toBe("inline; filename*=utf-8''ein%20Bild%20%E2%98%83.png");
      expect(Buffer.from(await response.arrayBuffer()).equals(png)).toBe(true);
    }
    const thumbnail = await download(here, alice, `${media}?width=10&height=10`, 'thumbnail');
    expect([thumbnail.status, thumbnail.headers.get('content-type')]).toEqual([200, 'image/png']);
  });

  it('are files that are there, and small enough', async () => {
    expect((await download(here, alice, 'there.test/unknown')).status).toBe(404);
    const large = await upload(there, zoe, Buffer.concat([png, Buffer.alloc(200_000)]), 'large.png');
    const response = await download(here, alice, large);
    expect([response.status, ((await response.json()) as JsonObject)['errcode']]).toEqual([502, 'M_TOO_LARGE']);
    expect((await download(here, alice, 'nowhere.test/abc')).status).toBe(502);
  });

  it('are thumbnails, too', async () => {
    const media = await upload(here, alice, png, 'x.png');
    const uri = `/_matrix/federation/v1/media/thumbnail/${media.split('/')[1]}?width=16&height=16`;
    const response = await fetch(`${here.baseUrl}${uri}`, {
      headers: { authorization: other.authorization('GET', uri, 'here.test') },
    });
    const text = Buffer.from(await response.arrayBuffer()).toString('latin1');
    expect(response.headers.get('content-type')).toMatch(/^multipart\/mixed; boundary=[A-Za-z]{32}$/);
    expect(Number(response.headers.get('content-length'))).toBe(text.length);
    expect(text).toMatch(
      /^--\w+\r\nContent-Type: application\/json\r\n\r\n\{\}\r\n--\w+\r\nContent-Type: image\/png\r\n/,
    );
    expect(await other.request(here, 'GET', uri.replace('width=16&', ''))).toMatchObject({
      ...{ status: 400, body: { errcode: 'M_MISSING_PARAM' } },
    });
    expect((await send(here, 'GET', uri, undefined)).status).toBe(401);
  });

  it('is the directory, where the settings allow that', async () => {
    const roomId = await createRoom(alice, { visibility: 'public', preset: 'public_chat', name: 'Open to the world' });
    const uri = '/_matrix/federation/v1/publicRooms';
    const listed = (await other.request(here, 'GET', `${uri}?limit=5`)).body['chunk'] as JsonObject[];
    expect(listed).toEqual([expect.objectContaining({ room_id: roomId, name: 'Open to the world' })]);
    const search = (term: string): JsonObject => ({ limit: 5, filter: { generic_search_term: term } });
    expect((await other.request(here, 'POST', uri, search('WORLD'))).body['chunk']).toHaveLength(1);
    expect((await other.request(here, 'POST', uri, search('nothing'))).body['chunk']).toEqual([]);
    expect(await other.request(there, 'GET', uri)).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
  });

  describe('comes with a body that is signed', () => {
    const uri = '/_matrix/federation/v1/publicRooms';
    const post = async (signed: JsonObject | undefined, sent: string): Promise<unknown[]> => {
      const authorization = other.authorization('POST', uri, 'here.test', signed);
      const { status, body } = await send(here, 'POST', uri, authorization, sent);
      return [status, body['errcode'] ?? 'answered'];
    };

    it('however it is written', async () => {
      expect(await post({ limit: 1, x: 'ü', n: [1, null] }, '{ "x":"\\u00fc", "n":[1,null],\n"limit":1 }')).toEqual([
        ...[200, 'answered'],
      ]);
    });

    it('and not with another', async () => {
      const refused = [401, 'M_UNAUTHORIZED'];
      expect(await post({ limit: 1 }, '{"limit":2}')).toEqual(refused);
      expect(await post({ limit: 1 }, '{"limit":1,"more":true}')).toEqual(refused);
      expect(await post({ limit: 1 }, '{"limit":1.0}')).toEqual(refused);
      expect(await post(undefined, '{"limit":1}')).toEqual(refused);
      expect(await post({ limit: 1 }, '')).toEqual(refused);
    });

    it.each([
      ['no JSON', 'x', [400, 'M_NOT_JSON']],
      ['a list', '[]', [400, 'M_BAD_JSON']],
      ['half an object', '{"a":', [400, 'M_NOT_JSON']],
      ['endless depth', `{"a":${'['.repeat(40_000)}${']'.repeat(40_000)}}`, [400, 'M_BAD_JSON']],
      ['endless values', `{"a":[${'0,'.repeat(60_000)}0]}`, [413, 'M_TOO_LARGE']],
      ['no right limit', '{"limit":"x"}', [401, 'M_UNAUTHORIZED']],
    ])('and not with %s', async (_, sent, outcome) => {
      expect(await post({}, sent)).toEqual(outcome);
    });

    it('and has the right shape', async () => {
      expect(await post({ limit: 'x' }, '{"limit":"x"}')).toEqual([400, 'M_BAD_JSON']);
      expect(await post({ filter: { room_types: [1] } }, '{"filter":{"room_types":[1]}}')).toEqual([400, 'M_BAD_JSON']);
      expect(await post(undefined, '')).toEqual([400, 'M_NOT_JSON']);
    });
  });
});
