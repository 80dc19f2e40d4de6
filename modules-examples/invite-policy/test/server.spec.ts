import { fileURLToPath } from 'node:url';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';

let homeserver: TestHomeserver;
beforeAll(async () => {
  const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));
  const rules = [
    { to: '@quiet:*', action: 'drop' },
    { shared_room: true, action: 'allow' },
  ];
  const config = { rules, otherwise: 'deny', message: 'Meet first' };
  homeserver = await createTestHomeserver({ settings: { modules: [{ module, config }] } });
});
afterAll(() => homeserver.stop());

const newRoom = async (user: TestUser, body: object): Promise<string> => {
  const { body: created } = await user.request<{ room_id: string }>('POST', '/createRoom', body);
  return created.room_id;
};
const invite = (user: TestUser, roomId: string, invitee: TestUser): ReturnType<TestUser['request']> =>
  user.request('POST', `/rooms/${encodeURIComponent(roomId)}/invite`, { user_id: invitee.userId });

it('lets only those who share a room invite each other', async () => {
  const alice = await homeserver.registerUser('alice');
  const bob = await homeserver.registerUser('bob');
  const closed = await newRoom(alice, { preset: 'private_chat' });
  expect(await invite(alice, closed, bob)).toMatchObject({
    status: 403,
    body: { errcode: 'M_FORBIDDEN', error: 'Meet first' },
  });
  const open = await newRoom(alice, { preset: 'public_chat' });
  expect((await bob.request('POST', `/rooms/${encodeURIComponent(open)}/join`, {})).status).toBe(200);
  expect((await invite(alice, closed, bob)).status).toBe(200);
});

it('drops an invite without the inviter noticing', async () => {
  const carol = await homeserver.registerUser('carol');
  const quiet = await homeserver.registerUser('quiet');
  const room = await newRoom(carol, { preset: 'private_chat' });
  expect((await invite(carol, room, quiet)).status).toBe(200);
  const { body } = await quiet.request<{ rooms?: { invite?: object } }>('GET', '/sync');
  expect(body.rooms?.invite ?? {}).toEqual({});
});
