// The test runner's globals; this package is compiled without its types.
type Check = () => void | Promise<void>;
declare const it: ((name: string, check: Check, limitMs?: number) => void) & { skip(name: string, check: Check): void };
declare const describe: ((name: string, define: () => void) => void) & { skip(name: string, define: () => void): void };

/**
 * `it` for what not every machine can do: where this one cannot, the test is skipped, and its name says why.
 *
 * ```ts
 * import { itWhere } from '@rookery/testing';
 *
 * const asRoot = itWhere(process.getuid?.() === 0, 'only root can act as another user');
 * asRoot('lets no other user in', async () => {});
 * ```
 */
export const itWhere =
  (isPossible: boolean, why: string) =>
  (name: string, check: Check, limitMs?: number): void => {
    if (isPossible) it(name, check, limitMs);
    else it.skip(notRun(name, why), check);
  };

/** `describe` for what not every machine can do, as {@link itWhere}. */
export const describeWhere =
  (isPossible: boolean, why: string) =>
  (name: string, define: () => void): void => {
    if (isPossible) describe(name, define);
    else describe.skip(notRun(name, why), define);
  };

const notRun = (name: string, why: string): string => `${name} (not run: ${why})`;
