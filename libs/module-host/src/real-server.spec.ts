import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createTestHomeserver, type TestHomeserver, type TestUser } from '@rookery/testing';

/** Does with each message what its body says. */
const obedient = `
  import { defineModule, DROP_SILENTLY, NOT_SPAM, SOFT_FAIL } from '@rookery/module-api';
  export default defineModule({
    name: 'obedient',
    register(api) {
      api.registerSpamCheckerCallbacks({
        checkEventForSpam({ content }) {
          switch (content.body) {
            case 'refuse': return { errcode: 'ORG.EXAMPLE.NO', message: 'no', status: 429, extra: { retry_after_ms: 7 } };
            case 'drop': return DROP_SILENTLY;
            case 'soft': return SOFT_FAIL;
            case 'throw': throw new Error('secret');
            case 'hang': return new Promise(() => {});
            case 'rubbish': return { status: 200 };
            case 'change': content.body = 'changed'; return NOT_SPAM;
            default: return NOT_SPAM;
          }
        },
      });
      api.registerThirdPartyRulesCallbacks({
        checkEventAllowed: ({ content }) =>
          content.body === 'replace' ? { allowed: true, replacement: { content: { ...content, body: 'replaced' } } } : true,
      });
    },
  });
`;

/** Keeps notes by HTTP, and rings once when asked to. */
const notes = `
  import { defineModule, MatrixError } from '@rookery/module-api';
  export default defineModule({
    name: 'notes',
    register(api) {
      api.scheduler.handle('ring', (payload) => api.store.put('rung', payload));
      api.registerWebResource('/_synapse/client/notes/:key', async (request, { params }) => {
        const { userId } = await api.getUserByReq(request);
        const key = userId + '/' + params.key;
        if (request.method === 'PUT') await api.store.put(key, await request.json());
        const value = await api.store.get(params.key === 'rung' ? 'rung' : key);
        if (value === undefined) throw MatrixError.notFound();
        if (value.ring) await api.scheduler.runAt('ring', 0, value.ring);
        return Response.json(value, { headers: { 'x-user': (await api.getUserinfoById(userId)).userId } });
      });
    },
  });
`;

let folder: string;
let homeserver: TestHomeserver | undefined;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'rookery-real-'));
});
afterEach(async () => {
  await homeserver?.stop();
  homeserver = undefined;
  rmSync(folder, { recursive: true, force: true });
});

async function start(source: string, more: object = {}): Promise<TestHomeserver> {
  const module = join(folder, 'module.mjs');
  writeFileSync(module, source);
  homeserver = await createTestHomeserver({
    settings: { modules: [{ module, ...more }], room_list_publication_rules: [{ action: 'allow' }] },
  });
  return homeserver;
}
const done = async (asked: Promise<{ status: number; body: unknown }>): Promise<unknown> => {
  const { status, body } = await asked;
  if (status !== 200) throw new Error(`${status} ${JSON.stringify(body)}`);
  return body;
};
const roomPath = async (user: TestUser, body: object = {}): Promise<string> => {
  const created = (await done(user.request('POST', '/createRoom', body))) as { room_id: string };
  return `/rooms/${encodeURIComponent(created.room_id)}`;
};

describe('what a module says about a message', () => {
  const ask = async (more: object = {}): Promise<(body: string) => Promise<[number, unknown, string[]]>> => {
    const server = await start(obedient, more);
    const alice = await server.registerUser('alice');
    const room = await roomPath(alice);
    let txnId = 0;
    return async (body) => {
      const answer = await alice.request('PUT', `${room}/send/m.room.message/${(txnId += 1)}`, {
        msgtype: 'm.text',
        body,
      });
      const { chunk } = (await done(alice.request('GET', `${room}/messages?dir=b&limit=50`))) as {
        chunk: { content: { body?: string } }[];
      };
      return [answer.status, answer.body, chunk.flatMap(({ content }) => content.body ?? []).reverse()];
    };
  };

  it('a message is refused, dropped or sent as the module says', async () => {
    const say = await ask({ time_limit: 150 });
    expect(await say('refuse')).toEqual([429, { errcode: 'ORG.EXAMPLE.NO', error: 'no', retry_after_ms: 7 }, []]);
    for (const silent of ['drop', 'soft']) {
      expect(await say(silent)).toEqual([200, { event_id: expect.stringMatching(/^\$/) as string }, []]);
    }
    for (const failing of ['throw', 'hang', 'rubbish', 'change']) {
      const [status, body, texts] = await say(failing);
      expect([status, texts]).toEqual([500, []]);
      expect(body).toMatchObject({ errcode: 'M_UNKNOWN' });
      expect(JSON.stringify(body)).not.toContain('secret');
    }
    expect(await say('replace')).toMatchObject([200, {}, ['replaced']]);
    expect(await say('hello')).toMatchObject([200, {}, ['replaced', 'hello']]);
  });

  it('is not missed where failures are allowed', async () => {
    const say = await ask({ time_limit: 150, on_error: 'allow' });
    for (const failing of ['throw', 'hang', 'rubbish', 'change']) expect((await say(failing))[0]).toBe(200);
    expect((await say('refuse'))[0]).toBe(429);
    expect((await say('hello'))[2]).toEqual(['throw', 'hang', 'rubbish', 'change', 'hello']);
  });
});

it('what a module stores, plans and answers works in a real server, and is there after a restart', async () => {
  const server = await start(notes);
  const alice = await server.registerUser('alice');
  const path = '/_synapse/client/notes/';
  expect((await server.request('GET', `${path}a`)).status).toBe(401);
  expect((await alice.request('GET', `${path}a`)).status).toBe(404);
  expect((await alice.request('PUT', `${path}a`, { text: 'ä', list: [1, null] })).status).toBe(200);
  const bob = await server.registerUser('bob');
  expect((await bob.request('GET', `${path}a`)).status).toBe(404);
  await server.restart();
  const kept = await alice.request('GET', `${path}a`);
  expect(kept.body).toEqual({ text: 'ä', list: [1, null] });
  expect(kept.headers.get('x-user')).toBe(alice.userId);

  await done(alice.request('PUT', `${path}bell`, { ring: { loud: true } }));
  const rung = async (left: number): Promise<unknown> => {
    const { status, body } = await alice.request('GET', `${path}rung`);
    if (status === 200 || left === 0) return body;
    await new Promise((resolve) => setTimeout(resolve, 250));
    return rung(left - 1);
  };
  expect(await rung(60)).toEqual({ loud: true });
});
