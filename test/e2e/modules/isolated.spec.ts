import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  createTestHomeserver,
  eventually,
  RecordingLogger,
  type TestHomeserver,
  type TestUser,
} from '@rookery/testing';

const source = `
  import { Codes, defineModule, NOT_SPAM } from '@rookery/module-api';
  const loop = () => { for (;;); };
  export default defineModule({
    name: 'isolated',
    async register(api) {
      await api.migrate([{ name: 'first', sql: ['CREATE TABLE module_isolated_seen (event_id TEXT PRIMARY KEY)'] }]);
      api.registerSpamCheckerCallbacks({
        async checkEventForSpam(event) {
          if (event.content.body === 'loop') loop();
          if (event.content.body === 'exit') process.exit(1);
          if (event.content.body === 'spam') return { errcode: Codes.FORBIDDEN, message: 'no spam', extra: { 'org.example.depth': event.pdu.depth } };
          return NOT_SPAM;
        },
      });
      api.registerThirdPartyRulesCallbacks({
        async checkEventAllowed(event, state) {
          if (event.type !== 'm.room.message') return true;
          const create = await state.get('m.room.create');
          return { allowed: true, replacement: { content: { ...event.content, 'org.example.creator': create.sender } } };
        },
        async onNewEvent(event) {
          if (event.type !== 'm.room.message') return;
          await api.runDbInteraction('note', (tx) => tx.run('INSERT INTO module_isolated_seen (event_id) VALUES (?)', [event.eventId]));
        },
      });
      api.registerWebResource('/_synapse/client/isolated/seen', async (request) => {
        const { userId } = await api.getUserByReq(request);
        const rows = await api.runDbInteraction('read', (tx) => tx.query('SELECT event_id FROM module_isolated_seen'));
        return Response.json({ userId, seen: rows.map((row) => row.event_id) });
      });
    },
  });`;

describe.each(['sqlite', 'postgres'] as const)('a module in a thread of its own (%s)', (kind) => {
  let server: TestHomeserver;
  let folder: string;
  let ann: TestUser;
  let roomId: string;
  let txn = 0;
  const logger = new RecordingLogger();

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'rookery-isolated-'));
    const module = join(folder, 'isolated.mjs');
    await writeFile(module, source);
    server = await createTestHomeserver({
      database: kind,
      logger,
      settings: { modules: [{ module, isolate: 'thread', time_limit: 1_000, memory_limit: '64M' }] },
    });
    ann = await server.registerUser('ann');
    roomId = (await ann.request<{ room_id: string }>('POST', '/createRoom', {})).body.room_id;
  });
  afterAll(async () => {
    await server?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  const say = (body: string): ReturnType<TestUser['request']> =>
    ann.request('PUT', `/rooms/${encodeURIComponent(roomId)}/send/m.room.message/t${++txn}`, {
      msgtype: 'm.text',
      body,
    });

  it('judges, changes and is told of events, keeps tables, and answers requests', async () => {
    const sent = await say('hello');
    expect(sent.status).toBe(200);
    const eventId = (sent.body as { event_id: string }).event_id;
    const event = await ann.request('GET', `/rooms/${encodeURIComponent(roomId)}/event/${encodeURIComponent(eventId)}`);
    expect(event.body).toMatchObject({ content: { body: 'hello', 'org.example.creator': ann.userId } });
    expect(await say('spam')).toMatchObject({
      status: 403,
      body: { errcode: 'M_FORBIDDEN', error: 'no spam', 'org.example.depth': expect.any(Number) as number },
    });
    await eventually(async () => {
      const answer = await fetch(`${server.baseUrl}/_synapse/client/isolated/seen`, {
        headers: { authorization: `Bearer ${ann.accessToken}` },
      });
      expect(answer.status).toBe(200);
      const { userId, seen } = (await answer.json()) as { userId: string; seen: string[] };
      expect(userId).toBe(ann.userId);
      return seen.includes(eventId);
    });
  });

  it.each([
    ['loop', 'no sign of life'],
    ['exit', 'process.exit(1)'],
  ])(
    'that hangs or ends itself (%s) ends alone: others are answered meanwhile, and it comes back',
    async (body, reason) => {
      const hanging = say(body);
      const whoami = await ann.request('GET', '/account/whoami');
      expect(whoami.status).toBe(200);
      expect(await hanging).toMatchObject({ status: 500, body: { errcode: 'M_UNKNOWN' } });
      await eventually(() =>
        logger.lines.some(
          ({ message, fields }) =>
            message.startsWith('The thread of a module has ended') && String(fields['reason']).includes(reason),
        ),
      );
      await eventually(async () => (await say('hello again')).status === 200);
    },
  );
});
