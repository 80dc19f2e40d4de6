/** A module that cannot be loaded: the server refuses to start. The message is for the operator. */
export class ModuleLoadError extends Error {
  /**
   * @param module name of the module, or what the settings call it while its name is not known
   * @param problem what is wrong and what mends it
   * @param where file and line of the entry, where known
   */
  constructor(
    readonly module: string,
    readonly problem: string,
    readonly where?: string,
    options?: ErrorOptions,
  ) {
    super(`${where === undefined ? '' : `${where}: `}module ${module}: ${problem}`, options);
    this.name = 'ModuleLoadError';
  }

  /** The same with the place in the settings, when it has none yet. */
  at(where: string | undefined): ModuleLoadError {
    return this.where === undefined && where !== undefined
      ? new ModuleLoadError(this.module, this.problem, where, { cause: this.cause })
      : this;
  }
}
