/** Oldest Node.js that everything here runs on. */
const oldest: readonly [major: number, minor: number] = [22, 19];

/**
 * What to tell somebody whose Node.js is too old to load the server; nothing where it is new enough. To be asked before anything
 * else is loaded: an old one fails at loading.
 * @param version as in `process.versions.node`
 */
export function nodeProblem(version: string): string | undefined {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major > oldest[0] || (major === oldest[0] && minor >= oldest[1])
    ? undefined
    : `Rookery needs Node.js ${oldest.join('.')} or newer, and this is ${version}: install a newer one. In a clone, npm start and npx rookery use one of their own`;
}
