import { createTestHomeserver, type TestHomeserver } from '@rookery/testing';

describe('a server of several processes', () => {
  let homeserver: TestHomeserver;
  beforeAll(async () => {
    homeserver = await createTestHomeserver({ database: 'postgres', processes: 3 });
  });
  afterAll(() => homeserver?.stop());

  it('is one server to a client', async () => {
    const alice = await homeserver.registerUser('alice');
    const bob = await homeserver.registerUser('bob');
    const { body: room } = await alice.request('POST', '/createRoom', { preset: 'public_chat' });
    const roomId = room['room_id'] as string;
    expect((await bob.request('POST', `/join/${encodeURIComponent(roomId)}`, {})).status).toBe(200);
    for (let i = 0; i < 20; i++) {
      const sent = await alice.request('PUT', `/rooms/${encodeURIComponent(roomId)}/send/m.room.message/t${i}`, {
        msgtype: 'm.text',
        body: `message ${i}`,
      });
      expect(sent.status).toBe(200);
      const { status, body } = await bob.request<{ chunk: { event_id: string }[] }>(
        'GET',
        `/rooms/${encodeURIComponent(roomId)}/messages?dir=b&limit=1`,
      );
      expect(status).toBe(200);
      expect(body.chunk[0]?.event_id).toBe((sent.body as { event_id: string }).event_id);
    }
  });
});
