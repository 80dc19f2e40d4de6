import { fileURLToPath } from 'node:url';
import { createTestHomeserver, type TestHomeserver } from '@rookery/testing';

let homeserver: TestHomeserver;
beforeAll(async () => {
  const module = fileURLToPath(new URL('../src/index.ts', import.meta.url));
  const config = { words: ['casino'], message: 'Please mind your words' };
  homeserver = await createTestHomeserver({ settings: { modules: [{ module, config }] } });
});
afterAll(() => homeserver.stop());

it('refuses a message of a user with the reason, and nothing else', async () => {
  const alice = await homeserver.registerUser('alice');
  const created = await alice.request<{ room_id: string }>('POST', '/createRoom', {});
  expect(created.status).toBe(200);
  const send = (txnId: string, body: string): ReturnType<typeof alice.request> => {
    const path = `/rooms/${encodeURIComponent(created.body.room_id)}/send/m.room.message/${txnId}`;
    return alice.request('PUT', path, { msgtype: 'm.text', body });
  };
  expect(await send('1', 'Come to my CASINO')).toMatchObject({
    status: 403,
    body: { errcode: 'M_FORBIDDEN', error: 'Please mind your words' },
  });
  expect((await send('2', 'Come to my occasional tea')).status).toBe(200);
  const { body } = await alice.request<{ chunk: { content: { body?: string } }[] }>(
    'GET',
    `/rooms/${encodeURIComponent(created.body.room_id)}/messages?dir=b`,
  );
  const texts = body.chunk.map(({ content }) => content.body).filter((text) => text !== undefined);
  expect(texts).toEqual(['Come to my occasional tea']);
});
