import { fileURLToPath } from 'node:url';
import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';

const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));

describe('a module written with Nest', () => {
  let server: TestHomeserver;
  let concierge: TestUser;
  let guest: TestUser;
  let room: string;
  beforeAll(async () => {
    server = await createTestHomeserver({
      settings: { modules: [{ module, config: { sender: 'concierge', text: 'Come in!' } }] },
    });
    concierge = await server.registerUser('concierge');
    guest = await server.registerUser('guest');
    const created = await concierge.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' });
    room = encodeURIComponent(created.body.room_id);
  });
  afterAll(() => server?.stop());

  const welcomes = async (): Promise<unknown[]> => {
    const { body } = await concierge.request<{ chunk: { content: { body?: string } }[] }>(
      'GET',
      `/rooms/${room}/messages?dir=b&limit=100`,
    );
    return body.chunk.filter(({ content }) => content.body === 'Come in!');
  };

  it('hears of events as a stream, and sends', async () => {
    await guest.request('POST', `/rooms/${room}/join`, {});
    await eventually(async () => (await welcomes()).length === 1);
  });

  it('answers a callback by a decorated method', async () => {
    const send = (user: TestUser, body: string): ReturnType<TestUser['request']> =>
      user.request('PUT', `/rooms/${room}/send/m.room.message/${body.length}`, { msgtype: 'm.text', body });
    expect(await send(guest, 'Come in!')).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
    expect(await send(guest, 'Come out!')).toMatchObject({ status: 200 });
    expect(await send(concierge, 'Come in!')).toMatchObject({ status: 200 });
  });

  it('answers requests by controllers behind guards, with checked bodies', async () => {
    const path = '/_synapse/client/welcome';
    const room_id = decodeURIComponent(room);
    expect(await guest.request('POST', `${path}/greet`, { room_id })).toMatchObject({
      ...{ status: 200, body: { joined: true } },
    });
    expect(await guest.request('POST', `${path}/greet`, { room_id: 7 })).toMatchObject({
      status: 400,
      body: { errcode: 'M_INVALID_PARAM', error: expect.stringContaining('room_id must be') },
    });
    expect(await server.request('POST', `${path}/greet`, { room_id })).toMatchObject({
      ...{ status: 401, body: { errcode: 'M_MISSING_TOKEN' } },
    });
    expect(await guest.request('GET', `${path}/greeted`)).toMatchObject({
      ...{ status: 403, body: { errcode: 'M_FORBIDDEN' } },
    });
    expect(await guest.request('GET', `${path}/nothing`)).toMatchObject({
      ...{ status: 404, body: { errcode: 'M_NOT_FOUND' } },
    });
  });
});
