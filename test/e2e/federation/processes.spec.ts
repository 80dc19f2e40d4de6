import { eventually, freePort, makeTestAuthority } from '@rookery/testing';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { databaseKinds, ServerProcess } from '../../support/server-process.js';

/** Two programs as their operators run them, with real names, sockets and certificates. */
describe.each(databaseKinds)('two servers in their own processes (%s)', (database) => {
  const authority = makeTestAuthority();
  const servers: { process: ServerProcess; name: string }[] = [];

  const startServer = async (): Promise<void> => {
    const [port, tlsPort] = [await freePort(), await freePort()];
    const name = `localhost:${tlsPort}`;
    const listener = { bind_addresses: ['127.0.0.1'], type: 'http' };
    const process = await ServerProcess.prepare(database, {
      server_name: name,
      ip_range_whitelist: ['127.0.0.0/8', '::1/128'],
      federation_custom_ca_list: ['ca.pem'],
      tls_certificate_path: 'tls.cert',
      tls_private_key_path: 'tls.key',
      listeners: [
        { ...listener, port, resources: [{ names: ['client'] }] },
        { ...listener, port: tlsPort, tls: true, resources: [{ names: ['federation'] }] },
      ],
    });
    Object.assign(process, { baseUrl: `http://127.0.0.1:${port}` });
    const { cert, key } = authority.issue(['localhost']);
    await writeFile(join(process.folder, 'ca.pem'), authority.cert);
    await writeFile(join(process.folder, 'tls.cert'), cert);
    await writeFile(join(process.folder, 'tls.key'), key);
    servers.push({ process, name });
    await process.start();
  };
  beforeAll(async () => {
    await startServer();
    await startServer();
  }, 90_000);
  afterAll(async () => {
    for (const { process } of servers) await process.remove();
  });

  const call = async (base: string, method: string, path: string, body?: object, token = ''): Promise<Response> =>
    fetch(`${base}/_matrix/client/v3${path}`, {
      method,
      headers: { authorization: `Bearer ${token}` },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });

  it('show each other the profiles of their users, also after a restart', async () => {
    const [here, there] = servers as [(typeof servers)[0], (typeof servers)[0]];
    const register = async ({ process }: (typeof servers)[0], username: string): Promise<string> => {
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
  }, 60_000);
});
