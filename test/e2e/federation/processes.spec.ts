import { eventually } from '@rookery/testing';
import { databaseKinds } from '../../support/server-process.js';
import { FederatingProcesses, type FederatingProcess } from './server-processes.js';

/** Two programs as their operators run them, with real names, sockets and certificates. */
describe.each(databaseKinds)('two servers in their own processes (%s)', (database) => {
  const programs = new FederatingProcesses(database);
  const servers: FederatingProcess[] = [];
  beforeAll(async () => {
    servers.push(await programs.start(), await programs.start());
  });
  afterAll(() => programs.remove());

  const call = async (base: string, method: string, path: string, body?: object, token = ''): Promise<Response> =>
    fetch(`${base}/_matrix/client/v3${path}`, {
      method,
      headers: { authorization: `Bearer ${token}` },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });

  it('show each other the profiles of their users, also after a restart', async () => {
    const [here, there] = servers as [FederatingProcess, FederatingProcess];
    const register = async ({ process }: FederatingProcess, username: string): Promise<string> => {
      const answer = await call(process.baseUrl, 'POST', '/register', {
        ...{ username, password: 'correct horse', auth: { type: 'm.login.dummy' } },
      });
      return ((await answer.json()) as { access_token: string }).access_token;
    };
    const [alice, zoe] = [await register(here, 'alice'), await register(there, 'zoe')];
    const zoeId = `@zoe:${there.name}`;
    await call(there.process.baseUrl, 'PUT', `/profile/${zoeId}/displayname`, { displayname: 'Zoë' }, zoe);
    const seen = async (): Promise<unknown> =>
      (await call(here.process.baseUrl, 'GET', `/profile/${encodeURIComponent(zoeId)}`, undefined, alice)).json();
    expect(await seen()).toEqual({ displayname: 'Zoë' });
    expect(await there.process.stop()).toBe(0);
    expect(await seen()).toMatchObject({ errcode: 'M_UNKNOWN' });
    await there.process.start();
    expect(await here.process.stop()).toBe(0);
    await here.process.start();
    // Here remembers that there was down; a word from there ends that.
    const aliceId = `@alice:${here.name}`;
    const back = await call(there.process.baseUrl, 'GET', `/profile/${encodeURIComponent(aliceId)}`, undefined, zoe);
    expect(await back.json()).toMatchObject({ displayname: 'alice' });
    await eventually(async () => !('errcode' in ((await seen()) as object)));
    expect(await seen()).toEqual({ displayname: 'Zoë' });
    expect(here.process.output + there.process.output).not.toMatch(/Unhandled|"level":"error"|\bERROR\b/);
  });
});
