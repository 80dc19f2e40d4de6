import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { eventually } from '@rookery/testing';
import { parse, stringify } from 'yaml';
import { rookery } from '../support/operators.js';
import { type DatabaseKind, emptyDatabase, ServerProcess } from '../support/server-process.js';

describe.each([
  ['sqlite', 'postgres'],
  ['postgres', 'sqlite'],
] as const satisfies readonly (readonly [DatabaseKind, DatabaseKind])[])('moving from %s to %s', (from, to) => {
  let server: ServerProcess;
  let next: Awaited<ReturnType<typeof emptyDatabase>>;
  beforeAll(async () => {
    server = await ServerProcess.prepare(from);
    next = await emptyDatabase(to, server.folder);
    await server.start();
  });
  afterAll(async () => {
    await server?.remove();
    await next?.drop();
  });

  async function call(
    token: string | undefined,
    method: string,
    path: string,
    body?: object,
  ): Promise<Record<string, unknown>> {
    const answer = await fetch(`${server.baseUrl}/_matrix/client/v3/${path}`, {
      method,
      ...(token !== undefined && { headers: { authorization: `Bearer ${token}` } }),
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    expect({ path, status: answer.status }).toEqual({ path, status: 200 });
    return (await answer.json()) as Record<string, unknown>;
  }

  it('leaves nothing behind: sessions, rooms, messages, searches', async () => {
    const account = await call(undefined, 'POST', 'register', {
      username: 'alice',
      password: 'correct horse',
      auth: { type: 'm.login.dummy' },
    });
    const token = String(account['access_token']);
    const room = String((await call(token, 'POST', 'createRoom', { preset: 'public_chat', name: 'Room' }))['room_id']);
    const at = `rooms/${encodeURIComponent(room)}`;
    for (let i = 0; i < 20; i++)
      await call(token, 'PUT', `${at}/send/m.room.message/t${i}`, { msgtype: 'm.text', body: `parakeet ${i}` });
    // But for their age.
    const history = async (): Promise<string> =>
      JSON.stringify((await call(token, 'GET', `${at}/messages?dir=b&limit=100`))['chunk']).replaceAll(
        /"age":\d+/g,
        '',
      );
    const before = await history();
    const since = String((await call(token, 'GET', 'sync'))['next_batch']);

    const target = join(server.folder, 'next.yaml');
    writeFileSync(target, stringify({ database: next.section }));
    const running = await rookery('move-database', '--config', server.configFile, '--to', target);
    expect(running).toMatchObject({ code: 1, output: expect.stringContaining('Another server runs') });
    await server.stop();
    const moved = await rookery('move-database', '--config', server.configFile, '--to', target);
    expect(moved).toMatchObject({ code: 0, output: expect.stringContaining('counts and hashes agree') });
    const settings = parse(readFileSync(server.configFile, 'utf8')) as object;
    writeFileSync(server.configFile, stringify({ ...settings, database: next.section }));
    await server.start();

    // The same session goes on where it was, and new events come behind the old ones.
    expect(await history()).toBe(before);
    await call(token, 'PUT', `${at}/send/m.room.message/new`, { msgtype: 'm.text', body: 'budgerigar' });
    const sync = await call(token, 'GET', `sync?since=${encodeURIComponent(since)}`);
    expect(JSON.stringify(sync)).toContain('budgerigar');
    expect(JSON.stringify(sync)).not.toContain('parakeet');
    await eventually(async () => {
      const found = await call(token, 'POST', 'search', {
        search_categories: { room_events: { search_term: 'parakeet', keys: ['content.body'] } },
      });
      return JSON.stringify(found).includes('"count":20');
    });
  });
});
