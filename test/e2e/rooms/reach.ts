import type { TestHomeserver } from '@rookery/testing';

/**
 * Starts a server of this process and gets hold of one of its services, for what no endpoint offers.
 * @throws Error when the server has no such service
 */
export async function startAndReach<T extends object>(
  type: { readonly prototype: T },
  start: () => Promise<TestHomeserver>,
): Promise<{ homeserver: TestHomeserver; instance: T }> {
  const prototype = type.prototype as T & { onModuleInit?: () => unknown };
  const original = Object.getOwnPropertyDescriptor(prototype, 'onModuleInit');
  let instance: T | undefined;
  prototype.onModuleInit = function (this: T): unknown {
    instance = this;
    return (original?.value as (() => unknown) | undefined)?.call(this);
  };
  try {
    const homeserver = await start();
    if (!instance) throw new Error('the server has no such service');
    return { homeserver, instance };
  } finally {
    delete prototype.onModuleInit;
    if (original) Object.defineProperty(prototype, 'onModuleInit', original);
  }
}
