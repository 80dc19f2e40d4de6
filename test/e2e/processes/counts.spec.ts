import { createTestHomeserver, eventually, type TestHomeserver, type TestUser } from '@rookery/testing';
import { Bus, type BusMessage, Rpc } from '@rookery/replication';

/** With as many processes as there are, a message is said once, and is heard once by each of them. */
describe.each([2, 6])('A server of %d processes', (processes) => {
  let homeserver: TestHomeserver;
  let alice: TestUser;
  let room: string;
  /** What each process heard, and how often any asked another. */
  const heard: BusMessage[][] = [];
  const calls: string[] = [];

  beforeAll(async () => {
    heard.length = 0;
    homeserver = await createTestHomeserver({ database: 'postgres', processes });
    alice = await homeserver.registerUser('alice');
    const created = await alice.request<{ room_id: string }>('POST', '/createRoom', { preset: 'public_chat' });
    room = `/rooms/${encodeURIComponent(created.body.room_id)}`;
    for (const [n, server] of homeserver.servers.entries()) {
      server.service(Bus).subscribe((message) => (heard[n] ??= []).push(message));
      heard[n] = [];
      const rpc = server.service(Rpc);
      const call = rpc.call.bind(rpc);
      rpc.call = (method, ...more) => {
        calls.push(method.name);
        return call(method, ...more);
      };
      const callOthers = rpc.callOthers.bind(rpc);
      rpc.callOthers = (method, ...more) => {
        calls.push(method.name);
        return callOthers(method, ...more);
      };
    }
  });
  afterAll(() => homeserver?.stop());

  it('says each event once, and asks nobody for it', async () => {
    expect(heard.length).toBe(processes);
    for (const list of heard) list.length = 0;
    calls.length = 0;
    const sends = 20;
    for (let n = 0; n < sends; n++) {
      const content = { msgtype: 'm.text', body: `message ${n}` };
      const { status } = await alice.request('PUT', `${room}/send/m.room.message/${n}`, content);
      expect(status).toBe(200);
    }
    const events = (list: readonly BusMessage[]): BusMessage[] => list.filter(({ stream }) => stream === 'events');
    // Each hears in its own time, and all of them the same.
    await eventually(() => heard.every((list) => events(list).length >= sends && list.length === heard[0]!.length));
    for (const list of heard) {
      // Several that are stored together are said together.
      const positions = events(list).map(({ position }) => position);
      expect(positions).toEqual([...new Set(positions)].toSorted((a, b) => a - b));
    }
    // All that is said of them beside: how far their sender has read.
    expect(heard[0]!.filter(({ stream }) => stream !== 'events').length).toBeLessThanOrEqual(sends);
    expect(calls).toEqual([]);
  });
});
