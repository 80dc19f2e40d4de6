/** Under which a provider that lies elsewhere keeps what tells its parts. No module sees it. */
const parts = Symbol('parts');

/** Marks a provider as made elsewhere. @param made rejects with what the module refuses it with */
export const madeElsewhere = <T extends object>(provider: T, made: () => Promise<object>): T =>
  Object.assign(provider, { [parts]: made });

/**
 * What a module made: a provider, or of one in a thread the methods that it has, once it is there.
 * @throws what the module refuses it with
 */
export async function providerParts<T extends object>(provider: T): Promise<Partial<T>> {
  const made = (provider as { readonly [parts]?: () => Promise<Partial<T>> } | undefined)?.[parts];
  return made ? made() : provider;
}
