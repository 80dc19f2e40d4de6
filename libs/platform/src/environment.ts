/** Those of these variables of the process's environment that are set. */
export function environmentOf(names: readonly string[]): Record<string, string> {
  const found = names.flatMap((name) => {
    const value = process.env[name];
    return value === undefined ? [] : [[name, value] as const];
  });
  return Object.fromEntries(found);
}

/** The environment of a program that this one starts: the process's own, with these variables besides. */
export const environmentWith = (more: Readonly<Record<string, string>>): NodeJS.ProcessEnv => ({
  ...process.env,
  ...more,
});
