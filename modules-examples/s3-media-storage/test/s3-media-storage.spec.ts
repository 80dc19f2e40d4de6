import { readdirSync, readlinkSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import {
  ConfigError,
  type MediaFileInfo,
  type MediaServerSettings,
  type MediaStorageProvider,
  type ModuleApi,
} from '@rookery/module-api';
import { describeStorageProvider, eventually } from '@rookery/testing';
import s3MediaStorage from '../src/index.js';
import { parseConfig } from '../src/config.js';
import { authorization, encodePath, presignedQuery } from '../src/signature.js';
import { account, type S3Server, startS3Server } from './s3-server.js';

const info: MediaFileInfo = { serverName: undefined, fileId: 'x', urlCache: false };

/** The files that this process holds open, where the system tells. */
function openFiles(): string[] {
  if (process.platform !== 'linux') return [];
  return readdirSync('/proc/self/fd').map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return ''; // closed meanwhile
    }
  });
}

/** The module's provider, for a configuration. */
function load(config: object, maxUploadBytes = 52_428_800): { provider: MediaStorageProvider; stop: () => void } {
  let create: ((config: unknown, server: MediaServerSettings) => MediaStorageProvider) | undefined;
  let stop = (): void => {};
  const api = {
    getCurrentTimeMsec: () => Date.now(),
    sleep: () => Promise.resolve(),
    log: { warn: () => {} },
    onStop: (fn: () => void) => void (stop = fn),
    registerMediaStorageProvider: (_: string, factory: typeof create) => void (create = factory),
  } as unknown as ModuleApi;
  void s3MediaStorage.register(api, undefined);
  if (!create) throw new Error('nothing was registered');
  return { provider: create(config, { maxUploadBytes } as MediaServerSettings), stop };
}

describeStorageProvider('s3-media-storage', async () => {
  const server = await startS3Server('media');
  const { provider, stop } = load({ ...account, bucket: 'media', endpoint: server.endpoint, prefix: 'matrix/' });
  return {
    provider,
    async stop() {
      expect([...server.objects.keys()].every((key) => key.startsWith('matrix/'))).toBe(true);
      stop();
      await server.stop();
    },
  };
});

describe('with a bucket', () => {
  let server: S3Server;
  let folder: string;
  let file: string;
  beforeAll(async () => {
    server = await startS3Server('media');
    folder = await mkdtemp(join(tmpdir(), 'rookery-s3-'));
    file = join(folder, 'file');
    await writeFile(file, 'contents');
  });
  afterAll(async () => {
    await server?.stop();
    await rm(folder, { recursive: true, force: true });
  });
  beforeEach(() => {
    server.trouble = [];
    server.requests = 0;
  });
  const config = (): object => ({ ...account, bucket: 'media', endpoint: server.endpoint });

  it('refuses a server that takes larger files than it can send', () => {
    expect(() => load(config(), 5 * 1024 ** 3 + 1)).toThrow('lower max_upload_size');
    expect(() => load(config(), 5 * 1024 ** 3)).not.toThrow();
  });

  it('says how objects are to be kept', async () => {
    const more = { storage_class: 'STANDARD_IA', server_side_encryption: 'AES256', session_token: 'temporary' };
    await load({ ...config(), ...more }).provider.storeFile('a/b', info, file);
    expect(server.lastPut).toMatchObject({
      'x-amz-storage-class': 'STANDARD_IA',
      'x-amz-server-side-encryption': 'AES256',
      'x-amz-security-token': 'temporary',
      'content-length': '8',
    });
  });

  it('tries again when that may help', async () => {
    const { provider } = load(config());
    server.trouble = [503, 'reset'];
    await provider.storeFile('again', info, file);
    expect(server.requests).toBe(3);
    server.trouble = [500, 500, 500];
    await expect(provider.storeFile('never', info, file)).rejects.toThrow('500 SlowDown');
    expect(server.objects.has('never')).toBe(false);
  });

  it('does not try again when that cannot help, and says why', async () => {
    const wrong = load({ ...config(), secret_access_key: 'wrong' }).provider;
    await expect(wrong.storeFile('x', info, file)).rejects.toThrow('403 SignatureDoesNotMatch');
    expect(server.requests).toBe(1);
    // A refusal is no absence: the next provider may be asked, but the log says what is wrong here.
    await expect(wrong.fetch('x', info)).rejects.toThrow('403');
    await expect(load({ ...config(), bucket: 'other' }).provider.storeFile('x', info, file)).rejects.toThrow(
      'NoSuchBucket',
    );
  });

  it.each([
    ['its headers', 301, { 'x-amz-bucket-region': 'eu-west-9' }, '<Code>PermanentRedirect</Code>'],
    ['its words', 400, {}, '<Code>AuthorizationHeaderMalformed</Code><Region>eu-west-9</Region>'],
  ])('says in which region the bucket is, by %s', async (_, status, headers, body) => {
    const elsewhere = createServer((request, response) => {
      request.resume();
      response.writeHead(status, { ...headers, location: 'http://127.0.0.1:1/' }).end(`<Error>${body}</Error>`);
    });
    await new Promise<void>((resolve) => elsewhere.listen(0, '127.0.0.1', resolve));
    const endpoint = `http://127.0.0.1:${(elsewhere.address() as AddressInfo).port}`;
    try {
      await expect(load({ ...config(), endpoint }).provider.storeFile('x', info, file)).rejects.toThrow(
        'the bucket is in the region eu-west-9: change region, or endpoint',
      );
    } finally {
      elsewhere.closeAllConnections();
      elsewhere.close();
    }
  });

  it('tries again where the service was only too slow to read', async () => {
    let requests = 0;
    const slow = createServer((request, response) => {
      request.resume();
      response.writeHead((requests += 1) === 1 ? 400 : 200).end('<Error><Code>RequestTimeout</Code></Error>');
    });
    await new Promise<void>((resolve) => slow.listen(0, '127.0.0.1', resolve));
    const endpoint = `http://127.0.0.1:${(slow.address() as AddressInfo).port}`;
    try {
      await load({ ...config(), endpoint }).provider.storeFile('x', info, file);
      expect(requests).toBe(2);
    } finally {
      slow.closeAllConnections();
      slow.close();
    }
  });

  it('holds nothing in its cache that another process put there and this one removes', async () => {
    const cached = { ...config(), cache_folder: join(folder, 'cache') };
    const [one, other] = [load(cached).provider, load(cached).provider];
    await other.fetch('shared/file', info);
    await one.storeFile('shared/file', info, file);
    expect(readdirSync(join(folder, 'cache'))).toHaveLength(1);
    await other.remove?.('shared/file', info);
    expect(readdirSync(join(folder, 'cache'))).toEqual([]);
    expect(await one.fetch('shared/file', info)).toBeUndefined();
  });

  it('asks once for what no cache can take, and reads all of it', async () => {
    const { provider } = load({ ...config(), cache_folder: join(file, 'no folder') });
    await provider.storeFile('uncached', info, file);
    server.requests = 0;
    expect(await text((await provider.fetch('uncached', info))!)).toBe('contents');
    expect(server.requests).toBe(1);
  });

  it('begins with a cache out of which a file was taken meanwhile', async () => {
    const cache = join(folder, 'changing cache');
    await mkdir(cache);
    await symlink(join(folder, 'gone'), join(cache, 'a'.repeat(64)));
    const { provider } = load({ ...config(), cache_folder: cache });
    await provider.storeFile('shared/new', info, file);
    expect(readdirSync(cache)).toHaveLength(2);
  });

  it('gives up on a service that falls silent', async () => {
    const silent = createServer(() => {});
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
    const endpoint = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`;
    const { provider } = load({ ...config(), endpoint, timeout_ms: 100 });
    await expect(provider.fetch('x', info)).rejects.toThrow('no answer within 100 ms');
    // More than the buffers on the way hold, so that the upload is stopped in the middle of the file.
    const large = join(folder, 'large');
    await writeFile(large, Buffer.alloc(32 * 1024 * 1024));
    await expect(provider.storeFile('x', info, large)).rejects.toThrow('no answer within 100 ms');
    await eventually(() => !openFiles().includes(large));
    silent.closeAllConnections();
    silent.close();
  });
});

describe('signatures', () => {
  // The examples of Amazon's documentation of signature version 4.
  const credentials = {
    accessKeyId: 'AKIAIOSFODNN7EXAMPLE',
    secretAccessKey: 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY',
    region: 'us-east-1',
  };
  const host = 'examplebucket.s3.amazonaws.com';
  const date = '20130524T000000Z';

  it('are the documented one of an address for others', () => {
    expect(presignedQuery({ path: '/test.txt', host, query: {}, seconds: 86_400, date }, credentials)).toMatch(
      /X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404$/,
    );
  });

  it('are the documented one of a download', () => {
    const headers = {
      host,
      range: 'bytes=0-9',
      'x-amz-content-sha256': 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',
      'x-amz-date': date,
    };
    expect(authorization({ method: 'GET', path: '/test.txt', headers }, credentials)).toMatch(
      /Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41$/,
    );
  });

  it('are the documented one of an upload', () => {
    const headers = {
      date: 'Fri, 24 May 2013 00:00:00 GMT',
      host,
      'x-amz-content-sha256': '44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072',
      'x-amz-date': date,
      'x-amz-storage-class': 'REDUCED_REDUNDANCY',
    };
    expect(authorization({ method: 'PUT', path: encodePath('/test$file.text'), headers }, credentials)).toMatch(
      /Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd$/,
    );
  });
});

describe('settings', () => {
  const least = { ...account, bucket: 'media' };

  it('what is not set has its default', () => {
    expect(parseConfig(least)).toMatchObject({ prefix: '', pathStyle: false, uploadHeaders: {}, timeoutMs: 30_000 });
    expect(parseConfig(least).endpoint.host).toBe('s3.test-1.amazonaws.com');
    expect(parseConfig({ ...least, endpoint: 'http://minio:9000' }).pathStyle).toBe(true);
    expect(parseConfig({ ...least, bucket: 'with.dots' }).pathStyle).toBe(true);
  });

  it.each([
    [undefined],
    [{}],
    [{ ...least, bucket: 'A' }],
    [{ ...least, bucket: '../x' }],
    [{ ...least, secret_access_key: '' }],
    [{ ...least, secret_access_key: 'two words' }],
    [{ ...least, endpoint: 'ftp://x' }],
    [{ ...least, endpoint: 'https://x/path' }],
    [{ ...least, endpoint: 'https://name:word@x' }],
    [{ ...least, prefix: '/x' }],
    [{ ...least, prefix: 'a//b' }],
    [{ ...least, prefix: '../' }],
    [{ ...least, path_style: 'yes' }],
    [{ ...least, timeout_ms: 5 }],
    [{ ...least, storage_class: 'a\nb' }],
    [{ ...least, buckett: 'x' }],
  ])('%j are refused', (config) => {
    expect(() => parseConfig(config)).toThrow(ConfigError);
  });
});
