import { join } from 'node:path';
import { eventually } from '@rookery/testing';
import { databaseKinds, ServerProcess } from '../../support/server-process.js';

describe.each(databaseKinds)('modules of a program that is killed (%s)', (kind) => {
  let server: ServerProcess;
  beforeAll(async () => {
    server = await ServerProcess.prepare(kind, {
      modules: [{ module: join(import.meta.dirname, 'fixtures/diary.mjs') }],
    });
    await server.start();
  });
  afterAll(() => server?.remove());

  const send = async (method: string, path: string, body?: object, token?: string): Promise<Record<string, string>> => {
    const response = await fetch(server.baseUrl + path, {
      method,
      headers: token === undefined ? {} : { authorization: `Bearer ${token}` },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    expect(response.status).toBe(200);
    return (await response.json()) as Record<string, string>;
  };
  const diary = async (): Promise<string[]> => (await send('GET', '/_synapse/client/diary')) as unknown as string[];

  it('what was stored happens after the next start: jobs, and telling of events', async () => {
    const account = { username: 'ann', password: 'a good password', auth: { type: 'm.login.dummy' } };
    const { access_token: token } = await send('POST', '/_matrix/client/v3/register', account);
    const { room_id: roomId = '' } = await send('POST', '/_matrix/client/v3/createRoom', {}, token);
    const path = `/_matrix/client/v3/rooms/${encodeURIComponent(roomId)}/send/m.room.message`;
    const numbers = Array.from({ length: 20 }, (_, i) => String(i).padStart(2, '0'));
    await Promise.all(numbers.map((n) => send('POST', `/_synapse/client/diary/schedule/${n}`)));
    await Promise.all(numbers.map((n) => send('PUT', `${path}/${n}`, { body: n }, token)));
    expect(await server.stop('SIGKILL')).toBe('SIGKILL');
    await server.start();
    const wanted = ['event', 'job'].flatMap((kindOf) => numbers.map((n) => `${kindOf}/${n}`));
    await eventually(async () => ((await diary()).length >= wanted.length ? true : undefined));
    expect(await diary()).toEqual(wanted);
  });

  it('what a module lets escape is logged, and the program lives', async () => {
    await send('GET', '/_synapse/client/diary/escape');
    await eventually(() => (server.output.includes('thrown where nobody can catch it') ? true : undefined));
    await eventually(() => (server.output.includes('rejected with nobody listening') ? true : undefined));
    expect(server.output).toContain('"module":"diary"');
    expect((await diary()).length).toBe(40);
    expect(await server.stop()).toBe(0);
  });
});
