import { spawnSync } from 'node:child_process';

/** Runs a script in a process of its own, since what is loaded stays loaded. */
function run(script: string): unknown {
  const module = JSON.stringify(new URL('lean-imports.ts', import.meta.url).href);
  const { stdout, stderr } = spawnSync(
    process.execPath,
    ['--input-type=module', '-e', `const { leanImports } = await import(${module});\n${script}`],
    { encoding: 'utf8' },
  );
  if (stdout === '') throw new Error(stderr);
  return JSON.parse(stdout);
}

describe('lean imports', () => {
  it('leave out what only looks needed, and leave everything as it was', () => {
    const result = run(`
      const { DateTimeFormat } = Intl;
      const clients = () => process.moduleLoadList.filter((name) => name.includes('undici')).length;
      await leanImports();
      const { Logger } = await import('@nestjs/common');
      const http = await import('node:http');
      const before = clients();
      console.log(JSON.stringify({
        before,
        named: typeof http.request,
        webSocket: typeof http.default.WebSocket,
        after: clients(),
        same: Intl.DateTimeFormat === DateTimeFormat,
        time: Logger.getTimestamp(),
      }));
    `);
    expect(result).toMatchObject({
      ...{ before: 0, named: 'function', webSocket: 'function', after: 1, same: true },
      time: expect.stringMatching(/\d.*:\d\d:\d\d/),
    });
  });
});
