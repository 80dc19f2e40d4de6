import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createTestHomeserver, RecordingLogger, type TestHomeserver, type TestUser } from '@rookery/testing';

const written = (name: string, register: string): string => `
  import { defineModule, MatrixError, NOT_SPAM } from '@rookery/module-api';
  export default defineModule({ name: '${name}', register(api) { ${register} } });`;

const sources = {
  /** Does what a request asks for, and would have nothing of it by its own rules. */
  acts: written(
    'acts',
    `api.registerThirdPartyRulesCallbacks({
      checkEventAllowed: ({ content }, _state, { source }) => source !== 'module' || content.body === 'ring',
      onCreateRoom(_requester, _request, _isAdmin, { source }) {
        if (source === 'module') throw new MatrixError(403, 'M_FORBIDDEN', 'Not even mine');
      },
    });
    api.registerWebResource('/_synapse/client/acts', async (request) => {
      const [name, ...args] = await request.json();
      return Response.json(await api[name](...args));
    });`,
  ),
  rules: written(
    'rules',
    `api.registerThirdPartyRulesCallbacks({
      checkEventAllowed({ content }, _state, { source, userId }) {
        if (content.body === 'forbidden' || content.name === 'forbidden') return false;
        if (content.body !== 'who?') return true;
        return { allowed: true, replacement: { content: { ...content, body: source + ' ' + userId } } };
      },
      onCreateRoom(_requester, request, _isAdmin, { source }) {
        if (request.name === 'none') throw new MatrixError(403, 'M_FORBIDDEN', 'No rooms');
        return { ...request, topic: source };
      },
    });
    api.registerSpamCheckerCallbacks({ checkEventForSpam: ({ content }) => (content.body === 'spam' ? 'M_FORBIDDEN' : NOT_SPAM) });`,
  ),
  ...Object.fromEntries(
    ['ping', 'pong'].map((name) => [
      name,
      written(
        name,
        `api.registerThirdPartyRulesCallbacks({
          async checkEventAllowed({ type, roomId, sender, content }) {
            if (content.body !== 'ring') return true;
            await api.createAndSendEventIntoRoom({ roomId, sender, type, content });
            return true;
          },
        });`,
      ),
    ]),
  ),
};

describe.each([
  ['sqlite', undefined],
  ['postgres', 'thread'],
] as const)('what a module does (%s, isolate: %s)', (database, isolate) => {
  let folder: string;
  let server: TestHomeserver;
  let ann: TestUser;
  let roomId: string;
  const logger = new RecordingLogger();
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'rookery-rules-'));
    const modules = Object.entries(sources).map(async ([name, source]) => {
      const module = join(folder, `${name}.mjs`);
      await writeFile(module, source);
      return { module, time_limit: '2m', ...(isolate ? { isolate } : {}) };
    });
    server = await createTestHomeserver({ database, logger, settings: { modules: await Promise.all(modules) } });
    ann = await server.registerUser('ann');
  });
  afterAll(async () => {
    await server?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  const act = (...call: unknown[]) => server.request<Record<string, string>>('POST', '/_synapse/client/acts', call);
  const message = (body: string): object => ({
    ...{ roomId, sender: ann.userId, type: 'm.room.message' },
    content: { msgtype: 'm.text', body },
  });
  const stateOf = async (type: string): Promise<unknown> =>
    (await ann.request('GET', `/rooms/${encodeURIComponent(roomId)}/state/${type}`)).body;

  it('passes the rules of the others for rooms', async () => {
    expect((await act('createRoom', ann.userId, { name: 'none' })).status).toBe(403);
    expect((await act('createRoom', ann.userId, { name: 'forbidden' })).status).toBe(403);
    const made = await act('createRoom', ann.userId, { name: 'fine' });
    expect(made.status).toBe(200);
    roomId = made.body['roomId']!;
    expect(await stateOf('m.room.topic')).toMatchObject({ topic: 'module' });
    expect(await stateOf('m.room.name')).toEqual({ name: 'fine' });
  });

  it('passes the rules of the others for events, and no spam check', async () => {
    expect((await act('createAndSendEventIntoRoom', message('forbidden'))).status).toBe(403);
    expect(await act('createAndSendEventIntoRoom', message('who?'))).toMatchObject({
      ...{ status: 200, body: { content: { body: `module ${ann.userId}` } } },
    });
    expect((await act('createAndSendEventIntoRoom', message('spam'))).status).toBe(200);
  });

  it('passes the rules of the others for members', async () => {
    const ben = await server.registerUser('ben');
    const invite = (content: object) => act('updateRoomMembership', ann.userId, ben.userId, roomId, 'invite', content);
    expect((await invite({ body: 'forbidden' })).status).toBe(403);
    expect(await invite({})).toMatchObject({ status: 200, body: { content: { membership: 'invite' } } });
  });

  it('comes to an end where modules ask each other with events of their own', async () => {
    const path = `/rooms/${encodeURIComponent(roomId)}/send/m.room.message/ring`;
    const sent = await ann.request('PUT', path, { msgtype: 'm.text', body: 'ring' });
    expect(sent).toMatchObject({ status: 429, body: { errcode: 'M_LIMIT_EXCEEDED' } });
    const stopped = 'A module answers events with events without end: it was stopped';
    expect(logger.lines.filter(({ message: text }) => text === stopped)).toHaveLength(1);
  });
});
