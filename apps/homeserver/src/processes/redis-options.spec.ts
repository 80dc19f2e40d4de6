import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Config } from '@rookery/platform';
import { RedisBus } from '@rookery/replication';
import { describeWithRedis, eventually, freePort, makeTestAuthority, TestRedis } from '@rookery/testing';
import { redisOptions } from './redis-options.js';

const idle = { catchUp: () => Promise.resolve(), makeOthersCatchUp: () => Promise.resolve() };

describe('settings of Redis', () => {
  let folder: string;
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'rookery-redis-tls-'));
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));

  const optionsOf = (redis: object): ReturnType<typeof redisOptions> =>
    redisOptions(Config.fromObject({ server_name: 'rookery.test', report_stats: false, redis }));
  const write = (name: string, text: string): string => {
    const file = join(folder, name);
    writeFileSync(file, text);
    return file;
  };

  it('name a file or a folder of authorities, and say what cannot be read', () => {
    const [one, other] = [makeTestAuthority('One').cert, makeTestAuthority('Other').cert];
    const authorities = join(folder, 'authorities');
    mkdirSync(join(authorities, 'more'), { recursive: true });
    writeFileSync(join(authorities, 'one.pem'), one);
    writeFileSync(join(authorities, '12ab34cd.0'), other);
    writeFileSync(join(authorities, 'README'), 'not one of them');
    const file = write('file.pem', one);
    expect(optionsOf({ use_tls: true, ca_path: authorities }).tls?.ca?.toSorted()).toEqual([one, other].sort());
    expect(optionsOf({ use_tls: true, ca_file: file, ca_path: authorities }).tls?.ca).toHaveLength(3);
    expect(optionsOf({ use_tls: true }).tls).not.toHaveProperty('ca');
    expect(optionsOf({}).tls).toBeUndefined();
    expect(() => optionsOf({ use_tls: true, ca_path: join(authorities, 'more') })).toThrow(/no certificate in .*more/);
    expect(() => optionsOf({ use_tls: true, ca_path: join(folder, 'none') })).toThrow(/Cannot read .*none/);
  });

  describeWithRedis('with TLS, certificates on both sides, a user and a password', () => {
    it('lead to it, and to no other', async () => {
      const authority = makeTestAuthority();
      const [server, client] = [authority.issue(['127.0.0.1', 'localhost']), authority.issue(['client'])];
      const authorities = join(folder, 'authorities');
      mkdirSync(authorities);
      writeFileSync(join(authorities, 'ours.pem'), authority.cert);
      const port = await freePort();
      const redis = await TestRedis.start(
        ...['--tls-port', String(port), '--tls-auth-clients', 'yes'],
        ...['--tls-cert-file', write('server.pem', server.cert), '--tls-key-file', write('server.key', server.key)],
        ...['--tls-ca-cert-file', write('authority.pem', authority.cert)],
        ...'--user rook on >secret ~* &* +@all'.split(' '),
        ...'--user default off'.split(' '),
      );
      const isUp = async (more: object): Promise<boolean> => {
        const settings = {
          ...{ enabled: true, host: '127.0.0.1', port, use_tls: true, ca_path: authorities },
          ...{ username: 'rook', password: 'secret', dbid: 2 },
          ...{ certificate_file: write('client.pem', client.cert), private_key_file: write('client.key', client.key) },
          ...more,
        };
        const bus = await RedisBus.connect({ ...optionsOf(settings), server: 'rookery.test', id: '1', ...idle });
        try {
          return bus.isUp;
        } finally {
          await bus.close();
        }
      };
      try {
        // It goes on without Redis where that takes long to answer.
        await eventually(() => isUp({}));
        expect(await isUp({ password: 'wrong' })).toBe(false);
        const stranger = makeTestAuthority('Stranger');
        expect(await isUp({ ca_path: undefined, ca_file: write('stranger.pem', stranger.cert) })).toBe(false);
        expect(await isUp({ certificate_file: undefined, private_key_file: undefined })).toBe(false);
      } finally {
        await redis.stop();
      }
    });
  });
});
