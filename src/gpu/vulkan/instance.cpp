#include "gpu/vulkan/instance.h"

#include <algorithm>
#include <cstring>

#include "base/fail.h"
#include "base/format.h"

namespace aeshna::gpu::vk {
namespace {

constexpr const char* kValidationLayer = "VK_LAYER_KHRONOS_validation";
constexpr std::size_t kMaxMessages = 32;  ///< later ones are only counted

template <class F>
F load(PFN_vkGetInstanceProcAddr loader, VkInstance instance, const char* name) {
  return reinterpret_cast<F>(loader(instance, name));
}

std::vector<VkExtensionProperties> instance_extensions(PFN_vkGetInstanceProcAddr loader, const char* layer) {
  const auto enumerate = load<PFN_vkEnumerateInstanceExtensionProperties>(loader, VK_NULL_HANDLE,
                                                                          "vkEnumerateInstanceExtensionProperties");
  std::uint32_t count = 0;
  if (enumerate(layer, &count, nullptr) != VK_SUCCESS) return {};
  std::vector<VkExtensionProperties> extensions(count);
  if (enumerate(layer, &count, extensions.data()) < VK_SUCCESS) return {};
  extensions.resize(count);
  return extensions;
}

bool has(const std::vector<VkExtensionProperties>& extensions, const char* name) {
  return std::ranges::any_of(extensions, [&](const auto& e) { return std::strcmp(e.extensionName, name) == 0; });
}

bool has_layer(PFN_vkGetInstanceProcAddr loader, const char* name) {
  const auto enumerate =
      load<PFN_vkEnumerateInstanceLayerProperties>(loader, VK_NULL_HANDLE, "vkEnumerateInstanceLayerProperties");
  std::uint32_t count = 0;
  if (enumerate(&count, nullptr) != VK_SUCCESS) return false;
  std::vector<VkLayerProperties> layers(count);
  if (enumerate(&count, layers.data()) < VK_SUCCESS) return false;
  layers.resize(count);
  return std::ranges::any_of(layers, [&](const auto& l) { return std::strcmp(l.layerName, name) == 0; });
}

VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT, VkDebugUtilsMessageTypeFlagsEXT,
                                          const VkDebugUtilsMessengerCallbackDataEXT* data, void* user) {
  std::string text = data->pMessage ? data->pMessage : "(no text)";
  for (std::uint32_t i = 0; i < data->objectCount; ++i)
    if (data->pObjects[i].pObjectName) text += formatted("\n  object: {}", data->pObjects[i].pObjectName);
  for (std::uint32_t i = 0; i < data->cmdBufLabelCount; ++i)
    if (data->pCmdBufLabels[i].pLabelName) text += formatted("\n  label: {}", data->pCmdBufLabels[i].pLabelName);
  static_cast<Messages*>(user)->add(std::move(text));
  return VK_FALSE;
}

VkDebugUtilsMessengerCreateInfoEXT messenger_info(Messages& messages) {
  VkDebugUtilsMessengerCreateInfoEXT info{VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT};
  info.messageSeverity =
      VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  info.messageType =
      VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;  // "general" is the loader's talk about other drivers
  info.pfnUserCallback = on_message;
  info.pUserData = &messages;
  return info;
}

}  // namespace

void Messages::add(std::string text) {
  const std::lock_guard lock(mutex_);
  if (texts_.size() < kMaxMessages) {
    texts_.push_back(std::move(text));
  } else {
    ++dropped_;
  }
}

std::string Messages::take() {
  const std::lock_guard lock(mutex_);
  std::string all;
  for (const auto& text : texts_) all += all.empty() ? text : "\n\n" + text;
  if (dropped_ > 0) all += formatted("\n\n({} more)", dropped_);
  texts_.clear();
  dropped_ = 0;
  return all;
}

std::shared_ptr<Instance> Instance::create(PFN_vkGetInstanceProcAddr loader, bool validation) {
  if (!loader)
    fail(ErrorCode::NoDevice,
         "no Vulkan loader on this machine (libvulkan.so.1, vulkan-1.dll or libvulkan.dylib); install your GPU "
         "vendor's driver, "
         "or Mesa's software driver with the package mesa-vulkan-drivers");
  const auto version_of = load<PFN_vkEnumerateInstanceVersion>(loader, VK_NULL_HANDLE, "vkEnumerateInstanceVersion");
  std::uint32_t version = VK_API_VERSION_1_0;
  if (version_of) version_of(&version);
  if (version < VK_API_VERSION_1_2)
    fail(ErrorCode::NoDevice, "the Vulkan loader is version {}.{}, Aeshna needs 1.2 or newer",
         VK_API_VERSION_MAJOR(version), VK_API_VERSION_MINOR(version));

  std::shared_ptr<Instance> instance(new Instance);
  instance->loader_ = loader;
  instance->validation_ = validation;

  std::vector<const char*> layers, extensions;
  VkInstanceCreateFlags flags = 0;
  const auto offered = instance_extensions(loader, nullptr);
  if (has(offered, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME)) {  // MoltenVK is only listed with it
    extensions.push_back(VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME);
    flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
  }

  // Without the shader-access heuristic the layer reports no hazard between two dispatches, whatever they bind.
  const VkBool32 on = VK_TRUE;
  const VkLayerSettingEXT settings[] = {
      {kValidationLayer, "validate_sync", VK_LAYER_SETTING_TYPE_BOOL32_EXT, 1, &on},
      {kValidationLayer, "syncval_submit_time_validation", VK_LAYER_SETTING_TYPE_BOOL32_EXT, 1, &on},
      {kValidationLayer, "syncval_shader_accesses_heuristic", VK_LAYER_SETTING_TYPE_BOOL32_EXT, 1, &on},
  };
  VkLayerSettingsCreateInfoEXT layer_settings{VK_STRUCTURE_TYPE_LAYER_SETTINGS_CREATE_INFO_EXT};
  layer_settings.settingCount = static_cast<std::uint32_t>(std::size(settings));
  layer_settings.pSettings = settings;
  VkDebugUtilsMessengerCreateInfoEXT messenger = messenger_info(instance->messages_);
  if (validation) {
    if (!has_layer(loader, kValidationLayer))
      fail(ErrorCode::Unsupported,
           "validation was asked for, but {} is not installed (package vulkan-validationlayers)", kValidationLayer);
    const auto of_layer = instance_extensions(loader, kValidationLayer);
    if (!has(of_layer, VK_EXT_LAYER_SETTINGS_EXTENSION_NAME))
      fail(ErrorCode::Unsupported,
           "the installed {} is too old: it lacks {}, which turns its synchronization checks on", kValidationLayer,
           VK_EXT_LAYER_SETTINGS_EXTENSION_NAME);
    layers.push_back(kValidationLayer);
    extensions.push_back(VK_EXT_LAYER_SETTINGS_EXTENSION_NAME);
    extensions.push_back(VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
    messenger.pNext = &layer_settings;
  }

  VkApplicationInfo application{VK_STRUCTURE_TYPE_APPLICATION_INFO};
  application.pApplicationName = "aeshna";
  application.pEngineName = "aeshna";
  application.apiVersion = std::min<std::uint32_t>(version, VK_API_VERSION_1_3);
  VkInstanceCreateInfo info{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
  info.pNext = validation ? &messenger : nullptr;
  info.flags = flags;
  info.pApplicationInfo = &application;
  info.enabledLayerCount = static_cast<std::uint32_t>(layers.size());
  info.ppEnabledLayerNames = layers.data();
  info.enabledExtensionCount = static_cast<std::uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();

  const auto create_instance = load<PFN_vkCreateInstance>(loader, VK_NULL_HANDLE, "vkCreateInstance");
  const VkResult result = create_instance(&info, nullptr, &instance->handle_);
  if (result == VK_ERROR_INCOMPATIBLE_DRIVER)
    fail(ErrorCode::NoDevice, "the Vulkan loader found no driver on this machine (vkCreateInstance: {})",
         result_name(result));
  check(result, "vkCreateInstance");

#define AESHNA_LOAD(name) instance->fn_.name = load<PFN_##name>(loader, instance->handle_, #name);
  AESHNA_INSTANCE_FUNCTIONS(AESHNA_LOAD)
#undef AESHNA_LOAD
  if (validation) {
    messenger.pNext = nullptr;
    check(instance->fn_.vkCreateDebugUtilsMessengerEXT(instance->handle_, &messenger, nullptr, &instance->messenger_),
          "vkCreateDebugUtilsMessengerEXT");
  }
  return instance;
}

Instance::~Instance() {
  if (messenger_) fn_.vkDestroyDebugUtilsMessengerEXT(handle_, messenger_, nullptr);
  if (handle_) fn_.vkDestroyInstance(handle_, nullptr);
}

std::vector<VkPhysicalDevice> Instance::physical_devices() const {
  std::uint32_t count = 0;
  VkResult result = fn_.vkEnumeratePhysicalDevices(handle_, &count, nullptr);
  // Without any driver some loaders create an instance and refuse here.
  if (result == VK_ERROR_INITIALIZATION_FAILED || result == VK_ERROR_INCOMPATIBLE_DRIVER) return {};
  check(result, "vkEnumeratePhysicalDevices");
  std::vector<VkPhysicalDevice> devices(count);
  result = fn_.vkEnumeratePhysicalDevices(handle_, &count, devices.data());
  if (result != VK_INCOMPLETE) check(result, "vkEnumeratePhysicalDevices");
  devices.resize(count);
  return devices;
}

}  // namespace aeshna::gpu::vk
