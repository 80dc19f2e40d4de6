import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Config, Metrics, SilentLogger } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import { AuthenticationService } from './authentication-service.js';

describe('an authentication service', () => {
  const ends: (() => unknown)[] = [];
  afterEach(async () => {
    for (const end of ends.splice(0)) await end();
  });

  /** This server's side of a service that answers as told. */
  const startService = async (answer: RequestListener) => {
    const server = createServer(answer);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const config = Config.fromObject({
      server_name: 'example.org',
      report_stats: false,
      matrix_authentication_service: {
        enabled: true,
        endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
        secret: 'both know it',
      },
    });
    const clock = new FakeClock();
    const service = new AuthenticationService(config, clock, new SilentLogger(), new Metrics('example.org'));
    ends.push(
      () => service.onModuleDestroy(),
      () => server.close(),
    );
    return { service, clock };
  };

  it('is asked once by all who wait, also where its answer is worth nothing afterwards', async () => {
    let asked = 0;
    const { service } = await startService((_request, response) => {
      asked++;
      const answer = { active: true, username: 'ann', scope: 'urn:matrix:client:api:*', expires_in: 0 };
      response.setHeader('content-type', 'application/json').end(JSON.stringify(answer));
    });
    const found = await Promise.all(Array.from({ length: 8 }, () => service.introspect('token')));
    expect(found).toEqual(Array.from({ length: 8 }, () => ({ localpart: 'ann', deviceId: undefined, isAdmin: false })));
    expect(asked).toBe(1);
    await service.introspect('token');
    expect(asked).toBe(2);
  });

  it('is not asked again at once what it says of itself while it says nothing, and what it said last goes on', async () => {
    let asked = 0;
    let issuer: string | undefined;
    const { service, clock } = await startService((_request, response) => {
      asked++;
      response.statusCode = issuer === undefined ? 500 : 200;
      response.end(JSON.stringify({ issuer }));
    });
    const told = async (): Promise<unknown> =>
      (await service.metadata().catch((error: { status: number }) => ({ issuer: error.status })))['issuer'];
    for (const _ of [1, 2, 3]) expect(await told()).toBe(503);
    expect(asked).toBe(1);
    await clock.advance(5_000);
    issuer = 'one';
    for (const _ of [1, 2, 3]) expect(await told()).toBe('one');
    expect(asked).toBe(2);
    await clock.advance(600_000);
    issuer = undefined;
    for (const _ of [1, 2, 3]) expect(await told()).toBe('one');
    expect(asked).toBe(3);
    await clock.advance(60_000);
    issuer = 'two';
    expect(await told()).toBe('two');
  });
});
