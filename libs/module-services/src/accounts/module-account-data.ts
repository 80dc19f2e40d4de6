import { Injectable } from '@nestjs/common';
import { isJsonObject, type JsonObject, MatrixError } from '@rookery/matrix-types';
import type { AccountDataManager } from '@rookery/module-api';
import { frozenCopy } from '@rookery/module-host';
import { AccountDataService } from '@rookery/users';
import { byModule } from './account-changes.js';
import { LocalAccounts } from './local-accounts.js';

/** `api.accountDataManager` */
@Injectable()
export class ModuleAccountData implements AccountDataManager {
  constructor(
    private readonly local: LocalAccounts,
    private readonly accountData: AccountDataService,
  ) {}

  async getGlobal(userId: string, dataType: string): ReturnType<AccountDataManager['getGlobal']> {
    this.local.assertLocal(userId);
    return frozenCopy(await this.accountData.find(userId, undefined, dataType));
  }

  async putGlobal(...[userId, dataType, content]: Parameters<AccountDataManager['putGlobal']>): Promise<void> {
    await this.local.get(userId);
    if (!isJsonObject(content)) throw MatrixError.badJson('The content has to be an object');
    await this.accountData.setByClient(userId, undefined, dataType, content as JsonObject, byModule);
  }
}
