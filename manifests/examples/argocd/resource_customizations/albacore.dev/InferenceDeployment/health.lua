-- Health of an InferenceDeployment, as kstatus (Flux, kubectl wait) sees it, with the messages that its controller wrote.
-- Degraded is what the controller cannot mend by itself (Stalled). A service without placement or over its objective is
-- Healthy, for it serves; the message says what is missing.
local status = obj.status or {}
if status.observedGeneration == nil then
  return {status = "Progressing", message = "Waiting for the controller"}
end
if status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "Waiting for the controller to see the last change"}
end

local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
local function is(kind, value)
  return conditions[kind] ~= nil and conditions[kind].status == value
end
local function message(kind)
  return conditions[kind].message or conditions[kind].reason or kind
end

if is("Stalled", "True") then
  return {status = "Degraded", message = message("Stalled")}
end
if is("Reconciling", "True") then
  return {status = "Progressing", message = message("Reconciling")}
end
if conditions.Ready == nil then
  -- At zero pods there is nothing to be ready, and the controller says nothing of it.
  if obj.spec ~= nil and obj.spec.replicas == 0 then
    return {status = "Suspended", message = "Scaled to zero"}
  end
  return {status = "Progressing", message = "Waiting for condition Ready"}
end
if not is("Ready", "True") then
  return {status = "Progressing", message = message("Ready")}
end
local text = message("Ready")
for _, kind in ipairs({"Placed", "SLOMet"}) do
  if is(kind, "False") or is(kind, "Unknown") then
    text = text .. "; " .. kind .. " is " .. conditions[kind].status .. ": " .. message(kind)
  end
end
return {status = "Healthy", message = text}
