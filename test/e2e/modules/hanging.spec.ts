import { join } from 'node:path';
import { NOT_SPAM } from '@rookery/module-api';
import { eventually, type TestUser } from '@rookery/testing';
import { probe, type ProbeServer, startProbe } from './probe-server.js';

const module = join(import.meta.dirname, 'fixtures/probe.ts');

describe.each([
  ['sqlite', 'deny'],
  ['postgres', 'deny'],
  ['sqlite', 'allow'],
  ['postgres', 'allow'],
] as const)('a callback that hangs (%s, on_error: %s)', (kind, onError) => {
  let server: ProbeServer;
  const asked: string[] = [];
  const rooms = new Map<TestUser, string>();
  let txn = 0;

  beforeAll(async () => {
    server = await startProbe(kind, { modules: [{ module, time_limit: 300, on_error: onError }] });
  });
  afterAll(() => server?.stop());
  beforeEach(() => {
    asked.length = 0;
    probe.answers.checkEventForSpam = ({ sender, content }: { sender: string; content: { body?: unknown } }) => {
      if (content.body !== undefined) asked.push(sender);
      return content.body === 'hang' ? new Promise(() => {}) : Promise.resolve(NOT_SPAM);
    };
  });

  const userWithRoom = async (name: string): Promise<TestUser> => {
    const user = await server.registerUser(name);
    rooms.set(user, (await user.request<{ room_id: string }>('POST', '/createRoom', {})).body.room_id);
    return user;
  };
  const send = async (user: TestUser, body: string): Promise<number> => {
    const path = `/rooms/${encodeURIComponent(rooms.get(user) ?? '')}/send/m.room.message/t${++txn}`;
    return (await user.request('PUT', path, { msgtype: 'm.text', body })).status;
  };
  const unasked = onError === 'deny' ? 500 : 200;

  it('for one user is not asked for that one any more, and for the others as ever', async () => {
    const [mallory, ann] = [await userWithRoom('mallory'), await userWithRoom('ann')];
    const hanging = Promise.all(Array.from({ length: 5 }, () => send(mallory, 'hang')));
    expect(await send(ann, 'hello')).toBe(200);
    expect(await hanging).toEqual(Array.from({ length: 5 }, () => unasked));
    asked.length = 0;
    expect(await send(mallory, 'hello')).toBe(unasked);
    expect(await send(ann, 'hello')).toBe(200);
    expect(asked).toEqual([ann.userId]);
  });

  it('for everybody is waited for by nobody, until a question in the background is answered', async () => {
    const users = await Promise.all(['b', 'c', 'd', 'e', 'f'].map(userWithRoom));
    const late = await userWithRoom('late');
    expect(await Promise.all(users.map((user) => send(user, 'hang')))).toEqual(users.map(() => unasked));
    asked.length = 0;
    // Asked behind the answer: its own question, which comes to an end.
    expect(await send(late, 'hello')).toBe(unasked);
    expect(asked).toEqual([late.userId]);
    await eventually(async () => {
      asked.length = 0;
      const status = await send(late, 'spam');
      return status === 200 && asked.length === 1 ? true : undefined;
    });
    probe.answers.checkEventForSpam = () => 'M_FORBIDDEN';
    for (const user of [late, ...users]) expect([user.userId, await send(user, 'hello')]).toEqual([user.userId, 403]);
  });
});
