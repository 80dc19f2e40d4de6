import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Config, Metrics, SilentLogger } from '@rookery/platform';
import { FakeClock } from '@rookery/testing';
import { AuthenticationService } from './authentication-service.js';

describe('an authentication service', () => {
  it('is asked once by all who wait, also where its answer is worth nothing afterwards', async () => {
    let asked = 0;
    const server = createServer((_request, response) => {
      asked++;
      const answer = { active: true, username: 'ann', scope: 'urn:matrix:client:api:*', expires_in: 0 };
      response.setHeader('content-type', 'application/json').end(JSON.stringify(answer));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const config = Config.fromObject({
      server_name: 'example.org',
      report_stats: false,
      'matrix_authentication_service.endpoint': `http://127.0.0.1:${(server.address() as AddressInfo).port}/`,
    });
    const service = new AuthenticationService(config, new FakeClock(), new SilentLogger(), new Metrics('example.org'));
    try {
      const found = await Promise.all(Array.from({ length: 8 }, () => service.introspect('token')));
      expect(found).toEqual(
        Array.from({ length: 8 }, () => ({ localpart: 'ann', deviceId: undefined, isAdmin: false })),
      );
      expect(asked).toBe(1);
      await service.introspect('token');
      expect(asked).toBe(2);
    } finally {
      await service.onModuleDestroy();
      server.close();
    }
  });
});
