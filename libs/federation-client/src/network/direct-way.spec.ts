import { Config } from '@rookery/platform';
import { FakeNames } from '@rookery/testing';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { DirectWay } from './direct-way.js';
import type { Errand } from './way-out.js';

describe('The way out of this process', () => {
  let server: Server;
  beforeAll(async () => {
    server = createServer((socket) => socket.end());
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  });
  afterAll(() => new Promise((resolve) => server.close(resolve)));

  const errands = ['federation', 'https', 'http'] as const satisfies readonly Errand[];
  /** What becomes of connections to this machine, by what they are for: to a name and to the address itself. */
  const outcomes = async (settings: object): Promise<unknown> => {
    const { port } = server.address() as AddressInfo;
    const names = new FakeNames().host(`near.test:${port}`, { address: '127.0.0.1', port });
    const way = DirectWay.of(Config.fromObject({ server_name: 'a.test', ...settings }), names);
    const outcome = async (host: string, errand: Errand): Promise<string> => {
      try {
        (await way.connect({ host, port }, errand, AbortSignal.timeout(30_000))).destroy();
        return 'reached';
      } catch (error) {
        return String((error as { reason?: unknown }).reason);
      }
    };
    return Promise.all(
      errands.map(async (errand) => [await outcome('near.test', errand), await outcome('127.0.0.1', errand)]),
    );
  };
  const [reached, blocked] = [
    ['reached', 'reached'],
    ['blocked', 'blocked'],
  ];

  it.each([
    [{}, [blocked, blocked, blocked]],
    [{ federation_ip_range_blacklist: ['10.0.0.0/8'] }, [reached, blocked, blocked]],
    [{ federation_ip_range_blacklist: ['127.0.0.0/8'], ip_range_blacklist: [] }, [blocked, reached, reached]],
    [{ ip_range_blacklist: [] }, [reached, reached, reached]],
  ])('leads to other servers and elsewhere as far as the settings say for each: %j', async (settings, expected) => {
    expect(await outcomes(settings)).toEqual(expected);
  });
});
