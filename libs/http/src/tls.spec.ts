import { Controller, Get, Module } from '@nestjs/common';
import { SilentLogger, SystemClock, SystemIds } from '@rookery/platform';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { Agent, fetch } from 'undici';
import { Access, HttpApp } from './index.js';

/** Made for this test; nothing else trusts it. */
const certificate = `-----BEGIN CERTIFICATE-----
MIIBmjCCAUGgAwIBAgIUOZxCmtcFEHICZIAa1xtTa8ikR4MwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyMDA3MTUyMVoYDzIxMjYxMDI3
MDcxNTIxWjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAATKbtYNwuWETimhrB/Q95VSn8T5o3rY9i84V+ttRRVOS9CXxn5jHGUO
AC+0rAqWw0pGuu4Sfm8ov1IYzNH8azUOo28wbTAdBgNVHQ4EFgQUBFlvPbukoIas
jPnCu1qTTGH/zZswHwYDVR0jBBgwFoAUBFlvPbukoIasjPnCu1qTTGH/zZswDwYD
VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI
zj0EAwIDRwAwRAIgY+UJHrHBTpV5YfP3rzTHr7NoKS2a1a0QuFZqJ977dhwCICvl
z+0ZgVQCybINrL+SF6/aA2MywxulLwmd1Q6sA7jS
-----END CERTIFICATE-----
`;
const key = `-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgxuEU47lkKZKRwlTQ
FTXBAb5o48nq7oYyfkA1klP0FyqhRANCAATKbtYNwuWETimhrB/Q95VSn8T5o3rY
9i84V+ttRRVOS9CXxn5jHGUOAC+0rAqWw0pGuu4Sfm8ov1IYzNH8azUO
-----END PRIVATE KEY-----
`;

@Controller()
class HelloController {
  @Get('/_matrix/client/v3/hello')
  @Access({ auth: 'none' })
  hello(): object {
    return { hello: true };
  }
}
@Module({ controllers: [HelloController] })
class HelloModule {}

describe('a TLS listener', () => {
  let folder: string;
  let app: HttpApp;
  let base: string;
  const trusting = new Agent({ connect: { ca: certificate } });
  const files = (): { certificatePath: string; privateKeyPath: string } => ({
    certificatePath: join(folder, 'cert.pem'),
    privateKeyPath: join(folder, 'key.pem'),
  });
  const create = (): Promise<HttpApp> =>
    HttpApp.create(HelloModule, {
      serverName: 'test',
      listeners: [
        { port: 0, bindAddresses: ['127.0.0.1'], type: 'http', tls: true, resources: [{ names: ['client'] }] },
      ],
      tls: files(),
      clock: new SystemClock(),
      ids: new SystemIds(),
      logger: new SilentLogger(),
    });
  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), 'rookery-tls-'));
    writeFileSync(files().certificatePath, certificate);
    writeFileSync(files().privateKeyPath, key);
    app = await create();
    const [address] = await app.listen();
    base = `https://localhost:${address!.port}`;
  });
  afterAll(async () => {
    await trusting.destroy();
    await app.close(100);
    rmSync(folder, { recursive: true });
  });

  it('answers those who trust its certificate', async () => {
    const response = await fetch(`${base}/_matrix/client/v3/hello`, { dispatcher: trusting });
    expect([response.status, await response.json()]).toEqual([200, { hello: true }]);
    await expect(fetch(`${base}/health`)).rejects.toThrow();
  });

  it('refuses old protocol versions', async () => {
    const { port } = app.addresses[0]!;
    const failure = await new Promise<string>((resolve) => {
      connect({
        port: port!,
        host: '127.0.0.1',
        minVersion: 'TLSv1',
        maxVersion: 'TLSv1.1',
        rejectUnauthorized: false,
        ciphers: 'ALL:@SECLEVEL=0',
      })
        .on('secureConnect', () => resolve('connected'))
        .on('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? 'failed'));
    });
    expect(failure).not.toBe('connected');
  });

  it('keeps its certificate when a reload brings rubbish', async () => {
    writeFileSync(files().certificatePath, 'rubbish');
    expect(() => app.reloadTls()).toThrow();
    const other = await create();
    await expect(other.listen()).rejects.toThrow('The TLS certificate and key cannot be used');
    await other.close(100);
    rmSync(files().certificatePath);
    expect(() => app.reloadTls()).toThrow(`Cannot read ${files().certificatePath}`);
    expect((await fetch(`${base}/health`, { dispatcher: trusting })).status).toBe(200);
    writeFileSync(files().certificatePath, certificate);
    app.reloadTls();
    expect((await fetch(`${base}/health`, { dispatcher: trusting, headers: { connection: 'close' } })).status).toBe(
      200,
    );
  });
});
