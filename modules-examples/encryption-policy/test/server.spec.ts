import { fileURLToPath } from 'node:url';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';

let homeserver: TestHomeserver;
let alice: TestUser;
beforeAll(async () => {
  const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));
  homeserver = await createTestHomeserver({ settings: { modules: [{ module, config: { forbid_in_public: true } }] } });
  alice = await homeserver.registerUser('alice');
});
afterAll(() => homeserver.stop());

const createRoom = async (body: object): Promise<string> => {
  const created = await alice.request<{ room_id: string }>('POST', '/createRoom', body);
  expect(created.status).toBe(200);
  return `/rooms/${encodeURIComponent(created.body.room_id)}`;
};
const algorithm = 'm.megolm.v1.aes-sha2';

it('encrypts a new private room, and keeps plain messages out of it', async () => {
  const room = await createRoom({ preset: 'private_chat' });
  expect((await alice.request('GET', `${room}/state/m.room.encryption`)).body).toMatchObject({ algorithm });
  const plain = await alice.request('PUT', `${room}/send/m.room.message/1`, { msgtype: 'm.text', body: 'hello' });
  expect(plain).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
  const encrypted = await alice.request('PUT', `${room}/send/m.room.encrypted/2`, { algorithm, ciphertext: 'x' });
  expect(encrypted.status).toBe(200);
});

it('keeps encryption out of a public room', async () => {
  const room = await createRoom({ preset: 'public_chat' });
  expect((await alice.request('GET', `${room}/state/m.room.encryption`)).status).toBe(404);
  const switched = await alice.request('PUT', `${room}/state/m.room.encryption`, { algorithm });
  expect(switched).toMatchObject({ status: 403, body: { errcode: 'M_FORBIDDEN' } });
  expect((await alice.request('PUT', `${room}/send/m.room.message/1`, { msgtype: 'm.text', body: 'hi' })).status).toBe(
    200,
  );
});
